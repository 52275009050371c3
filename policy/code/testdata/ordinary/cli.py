import click, yaml, toml, dotenv, rich
from rich.console import Console
from pydantic import BaseModel, Field
class Config(BaseModel):
    name: str = Field(default="x", min_length=1)
    tags: list[str] = []
@click.command()
@click.option("--path", default="c.yaml")
def main(path):
    with open(path) as f:
        cfg = Config(**yaml.safe_load(f))
    Console().print(cfg.model_dump(), globals_used := 1)
    print(cfg.__class__.__name__, type(cfg).__mro__[0].__doc__, super)
if __name__ == "__main__":
    main()
