from functools import lru_cache, reduce, partial
from heapq import heappush, heappop
import operator
import sys
import math
sys.setrecursionlimit(10000)
@lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def dijkstra(g, s):
    h, seen = [(0, s)], {}
    while h:
        d, u = heappop(h)
        if u in seen: continue
        seen[u] = d
        for v, w in g[u].items(): heappush(h, (d + w, v))
    return seen
print(fib(50), reduce(operator.mul, range(1, 10)), partial(pow, 2)(5), sorted([(1, 2)], key=operator.itemgetter(1)))
print(dijkstra({"a": {"b": 1}, "b": {}}, "a"), math.comb(5, 2))
def bisect(f, lo, hi):
    while True:
        mid = (lo + hi) / 2
        if hi - lo < 1e-9:
            return mid
        if f(mid) > 0: hi = mid
        else: lo = mid
print(bisect(lambda x: x * x - 2, 0, 2))
def dispatch(x):
    match x:
        case {"op": op, **rest}: return op, rest
        case [first, *others]: return first, others
        case _: return None
