"""Answers that are given again: to the same tokens, of the same client, under the same rule.

Off unless the operator asks for it. Nothing of a text is kept, only a hash of its tokens with a
secret of this process. What a client shares is its own alone, so that none learns from times what
another has asked. Everything here belongs to the event loop.
"""

import asyncio
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.engine.engine import Engine
from serve.engine.row import Answer, Row, Waiter
from serve.errors import DeadlineExceeded, OfframpError
from serve.rules.criterion import Reason

_DIGEST_BYTES: Final = 16
# What an answer takes beside its numbers, with its key and its place; measured, rounded up.
_ENTRY_BYTES: Final = 1000
# More rows do not wait for one: the queue, which bounds what is admitted, does not hold them.
_MOST_FOLLOWERS: Final = 256

Submit = Callable[[Sequence[Row]], None]
Observe = Callable[[Answer, int], None]


class Known(NamedTuple):
    """What the cache makes of rows.

    Attributes:
        answers: answers that are given again, by the tags of their rows.
        to_run: the rows that the engine is to run.
    """

    answers: dict[int, Answer]
    to_run: list[Row]


class SharedRow(Row):
    """A row whose answer other rows wait for too: it is cancelled once all have left.

    Attributes:
        followers: the rows that wait for its answer.
    """

    # No dataclass, which would take the field's slot in the place of the property.
    __slots__ = ("_left", "followers")

    def __init__(self, row: Row) -> None:
        """Take the place of a row."""
        self._left, self.followers = False, list[Row]()
        super().__init__(
            **{each.name: getattr(row, each.name) for each in fields(Row) if each.init}
        )

    # The engine's thread reads it while the event loop appends followers, which lists allow.
    @property
    def cancelled(self) -> bool:
        """Whether neither the row's own request nor any other wants an answer."""
        return self._left and all(row.cancelled for row in self.followers)

    @cancelled.setter
    def cancelled(self, left: bool) -> None:
        self._left = left


class AnswerCache:
    """The answers of one model that are kept, and those that are being computed.

    Attributes:
        counted: rows by what became of them: `hit`, `waited` for another's answer, or `miss`.
        num_bytes: estimated size of what is kept.
    """

    def __init__(self, max_bytes: int, submit: Submit, observe: Observe) -> None:
        """Keep answers of so many bytes.

        Args:
            max_bytes: the bound; the answers that were not asked for the longest go first.
            submit: gives rows to the engine.
            observe: counts an answer that is given again, with its number of tokens.
        """
        self.counted = {"hit": 0, "waited": 0, "miss": 0}
        self.num_bytes = 0
        self._max_bytes, self._submit, self._observe = max_bytes, submit, observe
        self._secret = secrets.token_bytes(32)
        self._kept: OrderedDict[bytes, Answer] = OrderedDict()
        self._flights: dict[bytes, _Flight] = {}

    def look(self, rows: list[Row], skipped: dict[int, Answer]) -> Known:
        """Tell which rows of a request have answers already, which wait, and which must run.

        Rows that are to run, and whose answers others may wait for, take the place of their own in
        `rows`. They must be submitted now, or given back by `forget`.

        Args:
            rows: the rows of one request, all of one client and one rule; their tags are their
                places.
            skipped: answers of rows that need none, by tag.
        """
        known = Known({}, [])
        key_of = self._keys(rows[0])
        for row in [row for row in rows if row.tag not in skipped]:
            key = key_of(row)
            if kept := self._kept.get(key):
                self._kept.move_to_end(key)
                self.counted["hit"] += 1
                known.answers[row.tag] = answer = _again(kept)
                self._observe(answer, row.num_tokens)
            elif (flight := self._flights.get(key)) and flight.takes(row):
                self.counted["waited"] += 1
                flight.follow(row)
            else:
                self.counted["miss"] += 1
                if flight is None:
                    rows[row.tag] = self._lead(key, row)
                known.to_run.append(rows[row.tag])
        return known

    def forget(self, rows: Sequence[Row]) -> None:
        """Forget rows that the engine has refused, for which no other row waits yet."""
        for row in rows:
            if isinstance(row.waiter, _Flight):
                self._flights.pop(row.waiter.key, None)

    def settle(self, flight: "_Flight", result: Answer | OfframpError) -> None:
        """Hand the outcome of a shared row to all that wait for it, and keep it if it is whole."""
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        followers = [row for row in flight.row.followers if not row.cancelled]
        flight.stop_waiting()
        if isinstance(result, OfframpError) or result.reason is Reason.DEADLINE:
            for row in followers:
                self._run_alone(row)
            return
        own = _owned(result)
        self._keep(flight.key, own)
        answer = _again(own)
        for row in followers:
            self._observe(answer, row.num_tokens)
            _settle(row, answer)

    def _lead(self, key: bytes, row: Row) -> SharedRow:
        shared = SharedRow(row)
        shared.waiter = self._flights[key] = _Flight(self, key, shared, row.waiter)
        return shared

    def _run_alone(self, row: Row) -> None:
        """Run a row whose answer has not come: its request waits on as any other does."""
        try:
            self._submit([row])
        except OfframpError as error:
            _settle(row, error)

    def _keep(self, key: bytes, answer: Answer) -> None:
        size = _size(answer)
        if size > self._max_bytes:
            return
        if replaced := self._kept.pop(key, None):
            self.num_bytes -= _size(replaced)
        self._kept[key] = answer
        self.num_bytes += size
        while self.num_bytes > self._max_bytes:
            self.num_bytes -= _size(self._kept.popitem(last=False)[1])

    def _keys(self, first: Row) -> Callable[[Row], bytes]:
        """Return what makes the keys of rows that have this one's client and rule."""
        shared = blake2b(digest_size=_DIGEST_BYTES, key=self._secret)
        shared.update(repr((first.client, first.rule.rule)).encode())

        def key_of(row: Row) -> bytes:
            own = shared.copy()
            counted = b"" if row.counted is None else row.counted.tobytes()
            own.update(b"%d,%d;" % (row.num_tokens, len(counted)))
            own.update(row.input_ids.tobytes() + row.token_type_ids.tobytes() + counted)
            for ids in row.in_front or ():  # those of two texts may differ where the others do not
                own.update(ids.tobytes())
            return own.digest()

        return key_of


class _Flight:
    """Waits for a shared row in the place of all that want its answer.

    Attributes:
        key: the row's.
        row: is being computed.
        loop: where it is settled.
    """

    def __init__(self, cache: AnswerCache, key: bytes, row: SharedRow, own: Waiter | None) -> None:
        self.key, self.row, self.loop = key, row, asyncio.get_running_loop()
        self._cache, self._own = cache, own
        self._timers: list[asyncio.TimerHandle] = []

    def takes(self, row: Row) -> bool:
        """Tell whether a row may wait: not where it would go before this one in the queue."""
        return (
            self.row.priority <= row.priority
            and not self.row.cancelled
            and len(self.row.followers) < _MOST_FOLLOWERS
        )

    def follow(self, row: Row) -> None:
        """Let a row wait, until its own deadline at most."""
        self.row.followers.append(row)
        if row.deadline_s < math.inf:
            left_s = max(0.0, row.deadline_s - Engine.clock())
            self._timers.append(self.loop.call_later(left_s, partial(_expire, row)))

    def stop_waiting(self) -> None:
        """Let no follower's deadline pass any more."""
        for timer in self._timers:
            timer.cancel()

    def settle(self, place: int, result: Answer | OfframpError) -> None:
        """Take the row's outcome."""
        if self._own:
            self._own.settle(place, result)
        self._cache.settle(self, result)


def _expire(row: Row) -> None:
    if not row.cancelled:
        row.cancelled = True
        _settle(row, DeadlineExceeded())


def _settle(row: Row, result: Answer | OfframpError) -> None:
    if row.waiter:
        row.waiter.settle(row.tag, result)


def _again(answer: Answer) -> Answer:
    """Return a kept answer as it is given again: without the times of its own run."""
    return answer._replace(queue_s=0.0, compute_s=0.0, cached=True)


def _owned(answer: Answer) -> Answer:
    """Return an answer with numbers of its own: the engine's are parts of whole batches."""
    arrays: dict[str, Any] = {
        name: value.copy()
        for name, value in answer._asdict().items()
        if isinstance(value, np.ndarray)
    }
    return answer._replace(**arrays)


def _size(answer: Answer) -> int:
    arrays: list[NDArray[np.float32]] = [each for each in answer if isinstance(each, np.ndarray)]
    return _ENTRY_BYTES + sum(each.nbytes for each in arrays)
