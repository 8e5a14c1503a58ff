"""What one arm of a rollout answers in this process, until it is counted with the audits."""

import threading
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from serve.audits.counts import Traffic, bucket_of
from serve.errors import (
    Cancelled,
    DeadlineExceeded,
    NoFlag,
    OverrideForbidden,
    UnknownDetector,
    UnknownProfile,
)
from serve.policy.rollout import Arm, ArmOf

# What a policy refuses, and another one might answer.
_REFUSED: Final = frozenset(
    each.code for each in (NoFlag, OverrideForbidden, UnknownDetector, UnknownProfile)
)
# Ends that a client has decided: only that it has waited long tells something of the server.
_CUT_SHORT: Final = (Cancelled.status, DeadlineExceeded.status)
# Where there are several clients, texts of each that count between two calls of `taken`, which is
# every two seconds, even if the others send fewer.
LEAST_TEXTS: Final = 20


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
        self._texts, self._first, self._several = Counter[str](), "", False

    def takes(self, client: str, num_texts: int) -> bool:
        """Count a request in its client's share; tell whether it counts in verdicts.

        Of one client no more counts than of all others, or than `LEAST_TEXTS`, so that none
        decides alone; only where there has been no other, all of it counts.
        """
        with self._lock:
            self._first = self._first or client
            self._several = self._several or client != self._first
            own = self._texts[client]
            most = max(LEAST_TEXTS, self._texts.total() - own)
            if self._several and own + num_texts > most:
                return False
            self._texts[client] += num_texts
            return True

    def left(self, layers: Sequence[int], degraded: bool) -> None:
        """Count the texts of a request by the layers that they have left at.

        Args:
            layers: one per text, or window of one.
            degraded: whether overload has moved the request to a faster rule.
        """
        with self._lock:
            self._exits.update(layers)
            self._ended["degraded"] += len(layers) * degraded

    def uncounted(self) -> None:
        """Count a request that counts in no verdict."""
        with self._lock:
            self._ended["uncounted"] += 1

    def ended(self, status: int, error_code: str, seconds: float | None) -> None:
        """Count a request that has ended; what clients do wrong is not counted.

        Args:
            status: of the answer; 504 also where the request's own deadline has cut it short.
            error_code: of the error that the request got; empty for none.
            seconds: how long the server has taken; None if it has only refused the request.
        """
        answered = status == HTTPStatus.OK
        cut_short = status in _CUT_SHORT
        failed = error_code in _REFUSED or (
            status >= HTTPStatus.INTERNAL_SERVER_ERROR and not cut_short
        )
        ms = 1000 * (seconds or 0.0)
        slow = self._slow_ms is not None and ms > self._slow_ms
        # How long a request that was cut short sooner would have taken is not known.
        timed = answered or (slow and cut_short)
        ended = answered or failed
        with self._lock:
            self._ended.update(requests=ended, errors=failed, timed=timed, slow=timed and slow)
            self._ended["uncounted"] += status == DeadlineExceeded.status and not timed
            if answered:
                self._times[bucket_of(ms)] += 1

    def taken(self) -> Traffic | None:
        """Return what was counted since the last call; None for nothing."""
        with self._lock:
            exits, ended, times = self._exits, +self._ended, self._times
            self._exits, self._ended, self._times = Counter(), Counter(), Counter()
            self._texts = Counter()
        if not (exits or ended):
            return None
        return Traffic(exits=dict(exits), times=dict(times), **ended)
