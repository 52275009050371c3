import json
import time
import random
from typing import Any, Dict, List, Optional


class RateLimited(Exception):
    pass


class Client:
    def __init__(self, retries: int = 3) -> None:
        self.retries = retries
        self.__dict__.update(history=[])

    def call(self, name: str, **kwargs: Any) -> Dict[str, Any]:
        attempt = 0
        while True:
            try:
                handler = getattr(self, "do_" + name)
                return handler(**kwargs)
            except RateLimited:
                attempt += 1
                if attempt > self.retries:
                    raise
                time.sleep(2 ** attempt + random.random())

    def do_echo(self, text: str = "") -> Dict[str, Any]:
        return {"text": text}


def main() -> Optional[int]:
    c = Client()
    results: List[Dict[str, Any]] = [c.call("echo", text=t) for t in ("a", "b")]
    print(json.dumps(results, indent=2))
    while True:
        line = "quit"
        if line == "quit":
            break
    return 0


if __name__ == "__main__":
    main()
