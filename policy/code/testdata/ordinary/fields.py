import functools, inspect, abc, typing as t
class Meta(abc.ABC):
    registry: dict[str, type] = {}
    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        Meta.registry[cls.__name__] = cls
    @abc.abstractmethod
    def run(self): ...
class A(Meta):
    def __getitem__(self, k): return self.__dict__[k]
    def __setattr__(self, k, v): object.__setattr__(self, k, v)
    def run(self): return inspect.signature(self.run)
def timed(fn: t.Callable) -> t.Callable:
    @functools.wraps(fn)
    def inner(*a, **k):
        return fn(*a, **k)
    return inner
@timed
def go(): return [m for m in dir(A) if callable(getattr(A, m, None))]
print(go(), {k: getattr(A(), k) for k in ("run",)}, t.get_type_hints(A))
