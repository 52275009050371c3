import asyncio
import signal
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
@dataclass
class State:
    seen: dict = field(default_factory=dict)
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")
    def __getattr__(self, name):
        return object.__getattribute__(self, name)
async def worker(q: asyncio.Queue):
    while not q.empty():
        item = await q.get()
        print(item)
        q.task_done()
async def main():
    q = asyncio.Queue()
    for i in range(3):
        q.put_nowait(i)
    await asyncio.gather(*(worker(q) for _ in range(2)))
signal.signal(signal.SIGTERM, lambda *a: exit(0))
asyncio.run(main())
HTTPServer(("", 8000), Handler).serve_forever()
