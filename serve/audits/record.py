"""What an audit keeps, and the newest of them. No texts, token ids or request ids are among it."""

import threading
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.audits.counts import Promise
from serve.audits.tally import Compared
from serve.policy.flag import AnyFlag
from serve.policy.windows import Windows

MAX_RECORDS = 5_000
MAX_BYTES = 64 * 1024 * 1024
_RECORD_BYTES = 3_000  # without the logits, about


class RowLogits(NamedTuple):
    """What every exit said of a text, or of a window of it; what a recording has of a row.

    Attributes:
        logits: (exits, labels) float32; for token classification (exits, tokens, labels).
        uncertainty: (exits,) the errors that the heads predict for themselves; None without.
        counted: (tokens,) which tokens rules look at, for token classification alone.
    """

    logits: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None = None
    counted: NDArray[np.bool_] | None = None

    @property
    def nbytes(self) -> int:
        """What the arrays take."""
        return sum(each.nbytes for each in self if each is not None)


class AuditRecord(NamedTuple):
    """One audited text.

    Attributes:
        time_s: when it was compared, seconds since 1970.
        version: of the policy that it was answered under.
        profile: see `Key`.
        rule: what decided when it leaves, as JSON.
        target: what the rule came from, as JSON; None where a rule was chosen.
        promise: that the answer came with; None without.
        exit_index: where the text left, counted from 0; of several windows, that which decided.
        early: whether it, or any window of it, left before the last exit.
        deadline: whether a deadline, and not the rule, made it leave.
        num_tokens: its length.
        compared: how the answer differs from full depth's.
        rows: the text, or each of its windows.
        windows: how several windows are combined; None of a single one.
        flag: that decided what was flagged; None without.
    """

    time_s: float
    version: int
    profile: str
    rule: str
    target: str | None
    promise: Promise | None
    exit_index: int
    early: bool
    deadline: bool
    num_tokens: int
    compared: Compared
    rows: tuple[RowLogits, ...]
    windows: Windows | None = None
    flag: AnyFlag | None = None

    @property
    def nbytes(self) -> int:
        """What it takes in memory, about."""
        return _RECORD_BYTES + sum(row.nbytes for row in self.rows)


class AuditLog:
    """The newest audits of a model, bounded in number and in bytes. Any thread."""

    def __init__(self, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES) -> None:
        """Start empty."""
        self._max_records, self._max_bytes = max_records, max_bytes
        self._records: deque[AuditRecord] = deque()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: AuditRecord) -> None:
        """Keep a record, and drop as many of the oldest as it takes."""
        with self._lock:
            self._records.append(record)
            self._num_bytes += record.nbytes
            while len(self._records) > self._max_records or self._num_bytes > self._max_bytes:
                self._num_bytes -= self._records.popleft().nbytes

    def records(self) -> list[AuditRecord]:
        """Return what is kept, the oldest first."""
        with self._lock:
            return list(self._records)
