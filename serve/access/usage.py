"""What each client takes, held against its limits. For use on one event loop.

The limits hold for the whole server. Every replica counts by itself and allows its share of them.
Rates are token buckets. (The library `limits` starts a thread for every few requests, which took
30 % of the throughput.)
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from serve.access.keys import Key, Unit
from serve.errors import RateLimited

# A client that was idle for this long may take at once what its rate allows in that time.
BURST_S: Final = 1.0
# A request takes a text, or a token, for as many bytes of its body at least, refused or not. Texts
# that are answered have fewer bytes for each.
BODY_BYTES: Final[dict[Unit, int]] = {"texts": 8192, "tokens": 64}

# Rate of refused bodies of every client, with a key or without.
REFUSED_BYTES_PER_S: Final = 2**20
REFUSED_BURST_BYTES: Final = 2**24
# To tokenize a text in vain counts like so many bytes for each token.
REFUSED_TOKEN_BYTES: Final = 16
_MAX_REFUSED_CLIENTS: Final = 4096


class Bucket:
    """What one client may still take of one thing. It begins full.

    A request passes while anything is left, even if it takes more than that. So a request that is
    larger than the bucket passes, and the next ones wait until the debt is paid.
    """

    __slots__ = ("_at_s", "_left")

    def __init__(self) -> None:
        self._left, self._at_s = math.inf, 0.0

    def left(self, per_s: float, burst: float) -> float:
        """Return what is left, with a rate and what the bucket holds; 0 or less: wait."""
        now_s = time.monotonic()
        self._left = min(burst, self._left + (now_s - self._at_s) * per_s)
        self._at_s = now_s
        return self._left

    def take(self, amount: float) -> None:
        """Take something, after a look at what is left."""
        self._left -= amount


class Usage:
    """Counts what clients take in this process."""

    def __init__(self, num_replicas: Callable[[], int] = lambda: 1) -> None:
        self._num_replicas = num_replicas
        self._in_flight: Counter[str] = Counter()
        # By what is taken and the key's name.
        self._buckets: dict[tuple[Unit, str], Bucket] = defaultdict(Bucket)
        self._refused: dict[str, Bucket] = {}  # bytes, by the client's identity

    @contextmanager
    def in_flight(self, key: Key, most: int) -> Iterator[None]:
        """Count a request, of whatever kind, until its client has taken the answer.

        Raises:
            RateLimited: the key has as many requests in flight as the whole server allows.
        """
        allowed, number = math.ceil(most / self._num_replicas()), self._in_flight[key.name]
        if number >= allowed:
            raise RateLimited(
                f"the key {key.name} has {number} requests in flight; it may have {allowed} here "
                "at once",
                retry_after_s=1,
            )
        self._in_flight[key.name] += 1
        try:
            yield
        finally:
            self._in_flight[key.name] -= 1
            if not self._in_flight[key.name]:
                del self._in_flight[key.name]

    def take(self, key: Key, unit: Unit, amount: int, counted: int = 0) -> None:
        """Count what a request takes, of which so much has been counted already.

        It may be more than the key's bucket holds: the next requests wait until that is paid.

        Raises:
            RateLimited: earlier requests have taken all that there is.
        """
        per_s = key.limits.rates.get(unit)
        if per_s is None:
            return
        share, bucket = per_s / self._num_replicas(), self._buckets[unit, key.name]
        left = bucket.left(share, max(1.0, share * BURST_S))
        if left + counted <= 0:
            raise RateLimited(
                f"the key {key.name} may send {per_s} {unit} a second, and has sent more",
                retry_after_s=_until_paid(left, share),
            )
        bucket.take(max(0, amount - counted))

    def refuse(self, client: str, num_bytes: int) -> None:
        """Count a body that was refused."""
        if client not in self._refused and len(self._refused) >= _MAX_REFUSED_CLIENTS:
            del self._refused[next(iter(self._refused))]  # the first to be refused
        bucket = self._refused.setdefault(client, Bucket())
        bucket.left(REFUSED_BYTES_PER_S, REFUSED_BURST_BYTES)
        bucket.take(num_bytes)

    def check_refused(self, client: str) -> None:
        """Take no further body of a client of whom much was refused.

        Raises:
            RateLimited: too much was refused.
        """
        bucket = self._refused.get(client)
        left = bucket.left(REFUSED_BYTES_PER_S, REFUSED_BURST_BYTES) if bucket else 1.0
        if left <= 0:
            raise RateLimited(
                f"more than {REFUSED_BYTES_PER_S} bytes a second of your requests were refused, "
                "given up or timed out; the messages of their errors say why",
                retry_after_s=_until_paid(left, REFUSED_BYTES_PER_S),
            )


def _until_paid(left: float, per_s: float) -> int:
    return max(1, math.ceil(-left / per_s))
