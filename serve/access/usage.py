"""What each key takes, held against its limits. For use on one event loop.

The limits hold for the whole server. Every replica counts by itself and allows its share of them.
Rates are counted in fixed windows. (The library `limits` starts a thread for every few requests,
which took 30 % of the throughput.)
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from serve.access.keys import Key
from serve.errors import InvalidRequest, RateLimited, TextTooLong

# Rates hold on average over this time, so that a client may send a burst.
WINDOW_S = 10


class Usage:
    """Counts what keys take in this process."""

    def __init__(self, num_replicas: Callable[[], int] = lambda: 1) -> None:
        self._num_replicas = num_replicas
        self._in_flight: Counter[str] = Counter()
        self._windows: dict[tuple[str, str], _Window] = {}  # by what is taken and the key's name

    @contextmanager
    def in_flight(self, key: Key) -> Iterator[None]:
        """Count a request, of whatever kind, until its client has taken the answer.

        Raises:
            RateLimited: the key has too many requests in flight.
        """
        allowed = self._share(key.limits.in_flight or math.inf)
        if self._in_flight[key.name] >= allowed:
            raise RateLimited(
                f"the key {key.name} has {self._in_flight[key.name]} requests in flight; it may "
                f"have {allowed:g} here at once",
                retry_after_s=1,
            )
        self._in_flight[key.name] += 1
        try:
            yield
        finally:
            self._in_flight[key.name] -= 1
            if not self._in_flight[key.name]:
                del self._in_flight[key.name]

    def texts(self, key: Key, num_rows: int, max_chars: int) -> None:
        """Count so many texts of a request, the longest of `max_chars`.

        Raises:
            TextTooLong: a text is longer than the key may send.
            RateLimited: the key sends texts too fast.
            InvalidRequest: the request has more texts than the key may send at any time.
        """
        limits = key.limits
        if limits.max_text_chars and max_chars > limits.max_text_chars:
            raise TextTooLong(
                f"inputs: a text has {max_chars} characters; the key {key.name} may send texts of "
                f"{limits.max_text_chars}"
            )
        if limits.rows_per_s:
            self._take(key, "texts", limits.rows_per_s, num_rows)

    def rows(self, key: Key, num_rows: int, counted: int) -> None:
        """Count the rows of a request, of which so many have been counted as texts already.

        A text in windows has a row for each, which is known only once it is tokenized.

        Raises:
            RateLimited: the key sends texts too fast.
            InvalidRequest: the request has more than the key may send at any time.
        """
        if key.limits.rows_per_s:
            self._take(key, "texts", key.limits.rows_per_s, num_rows, counted)

    def tokens(self, key: Key, num_tokens: int) -> None:
        """Count the tokens of a request.

        Raises:
            RateLimited: the key sends tokens too fast.
            InvalidRequest: the request has more than the key may send at any time.
        """
        if key.limits.tokens_per_s:
            self._take(key, "tokens", key.limits.tokens_per_s, num_tokens)

    def _take(self, key: Key, what: str, per_s: int, amount: int, counted: int = 0) -> None:
        most = int(self._share(per_s * WINDOW_S))
        if amount > most:
            raise InvalidRequest(
                f"inputs: {amount} {what} are more than the key {key.name} may send in "
                f"{WINDOW_S} s, {most}; send fewer at once"
            )
        now_s = time.monotonic()
        window = self._windows.get((what, key.name))
        if window is None or now_s >= window.ends_s:
            window = self._windows[what, key.name] = _Window(now_s + WINDOW_S)
        if window.taken + amount - counted > most:
            raise RateLimited(
                f"the key {key.name} may send {per_s} {what} a second; it has sent more in the "
                f"last {WINDOW_S} s",
                retry_after_s=max(1, math.ceil(window.ends_s - now_s)),
            )
        window.taken += amount - counted

    def _share(self, limit: float) -> float:
        """Return this process's share of a limit of the whole server, at least 1."""
        return limit if limit == math.inf else max(1, math.ceil(limit / self._num_replicas()))


@dataclass(slots=True)
class _Window:
    ends_s: float
    taken: int = 0
