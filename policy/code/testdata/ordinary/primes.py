import itertools, math
def primes():
    found = []
    for n in itertools.count(2):
        if all(n % p for p in found if p <= math.isqrt(n)):
            found.append(n)
            yield n
print(list(itertools.islice(primes(), 20)))
def collatz(n):
    while True:
        yield n
        if n == 1:
            return
        n = n // 2 if n % 2 == 0 else 3 * n + 1
print(max(sum(1 for _ in collatz(i)) for i in range(1, 1000)))
