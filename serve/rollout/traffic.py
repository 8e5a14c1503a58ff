"""What one arm of a rollout answers in this process, until it is counted with the audits."""

import threading
from collections import Counter
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from serve.audits.counts import Traffic, bucket_of
from serve.errors import (
    Cancelled,
    DeadlineExceeded,
    NoFlag,
    OverrideForbidden,
    TargetOutOfReach,
    UnknownDetector,
    UnknownProfile,
)
from serve.policy.rollout import Arm, ArmOf

# What a policy refuses, and another one might answer.
_REFUSED: Final = frozenset(
    each.code
    for each in (NoFlag, OverrideForbidden, TargetOutOfReach, UnknownDetector, UnknownProfile)
)


class ArmTraffic:
    """Counts the requests of one arm. Any thread.

    Attributes:
        name: the arm's name.
    """

    def __init__(self, arm: ArmOf) -> None:
        """Count from zero."""
        self.name: Arm = arm.name
        self._slow_ms = arm.slow_ms
        self._lock = threading.Lock()
        self._exits, self._ended, self._times = Counter[int](), Counter[str](), Counter[int]()

    def left(self, layers: Iterable[int]) -> None:
        """Count the texts of a request by the layers that they have left at."""
        with self._lock:
            self._exits.update(layers)

    def ended(self, status: int, error_code: str, seconds: float | None) -> None:
        """Count a request that has ended; what clients do wrong is not counted."""
        answered = status == HTTPStatus.OK
        failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR or error_code in _REFUSED
        late = status == DeadlineExceeded.status
        ms = 1000 * (seconds or 0.0)
        slow = late or (self._slow_ms is not None and ms > self._slow_ms)
        # How long a client that has left sooner would have waited is not known.
        timed = answered or late or (slow and status == Cancelled.status)
        if not (answered or failed or timed):
            return
        ended = answered or failed
        with self._lock:
            self._ended.update(requests=ended, errors=failed, timed=timed, slow=timed and slow)
            if answered:
                self._times[bucket_of(ms)] += 1

    def taken(self) -> Traffic | None:
        """Return what was counted since the last call; None for nothing."""
        with self._lock:
            exits, ended, times = self._exits, self._ended, self._times
            self._exits, self._ended, self._times = Counter(), Counter(), Counter()
        if not (exits or ended):
            return None
        return Traffic(exits=dict(exits), times=dict(times), **ended)
