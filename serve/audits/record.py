"""What every exit said of the texts that were audited last. No texts or token ids are kept."""

import threading
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_RECORDS = 5_000
MAX_BYTES = 64 * 1024 * 1024
_RECORD_BYTES = 1_000  # without the logits, about


class RowLogits(NamedTuple):
    """What every exit said of a text, or of a window of it; what a recording has of a row.

    Attributes:
        logits: (layers, labels) float32, those of a table first, see `Traits.layers`; for token
            classification (layers, tokens, labels).
        uncertainty: (exits,) the errors that the heads predict for themselves; None without.
        counted: (tokens,) which tokens rules look at, for token classification alone.
    """

    logits: NDArray[np.float32]
    uncertainty: NDArray[np.float32] | None = None
    counted: NDArray[np.bool_] | None = None


class AuditRecord(NamedTuple):
    """One audited text.

    Attributes:
        profile: name of the profile that has answered; see `AuditKey`.
        rows: what the exits said of the text, or of each of its windows.
    """

    profile: str
    rows: tuple[RowLogits, ...]

    @property
    def nbytes(self) -> int:
        """The memory that the record takes, about."""
        arrays = (array for row in self.rows for array in row if array is not None)
        return _RECORD_BYTES + sum(array.nbytes for array in arrays)


class AuditLog:
    """The newest audits of a model, bounded in number and in bytes. Any thread."""

    def __init__(self, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES) -> None:
        """Start empty."""
        self._max_records, self._max_bytes = max_records, max_bytes
        self._records: deque[AuditRecord] = deque()
        self._num_bytes = 0
        self._lock = threading.Lock()

    def add(self, record: AuditRecord) -> None:
        """Keep a record, and drop as many of the oldest as need be."""
        with self._lock:
            self._records.append(record)
            self._num_bytes += record.nbytes
            while len(self._records) > self._max_records or self._num_bytes > self._max_bytes:
                self._num_bytes -= self._records.popleft().nbytes

    def records(self) -> list[AuditRecord]:
        """Return what is kept, the oldest first."""
        with self._lock:
            return list(self._records)
