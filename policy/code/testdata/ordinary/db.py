import sqlite3
import datetime as dt
from contextlib import closing, contextmanager
from enum import Enum
import uuid
class Kind(Enum):
    A = 1
@contextmanager
def connect(path):
    with closing(sqlite3.connect(path)) as c:
        yield c
with connect(":memory:") as c:
    c.execute("create table t (id text, at text)")
    c.executemany("insert into t values (?, ?)", [(str(uuid.uuid4()), dt.datetime.now().isoformat()) for _ in range(3)])
    c.commit()
    for row in c.execute("select * from t"):
        print(row)
print(Kind["A"], Kind.__members__, type(Kind.A).__name__, [getattr(Kind.A, f) for f in ("name", "value")])
