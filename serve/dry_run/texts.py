"""Texts on which a policy is tried: what every exit said of their windows."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from serve.audits.record import AuditRecord, RowLogits
from serve.rules.replay import Recording
from serve.rules.traits import Traits

# Taggers have logits for every token, so that fewer texts are tried: the newest. So many at once
# are padded to one length; of other tasks nothing is padded.
MOST_TAGGED, _MOST_PADDED = 1000, 256


class Part(NamedTuple):
    """Some of the texts.

    Attributes:
        recording: what the exits said of their windows, those of a text side by side.
        first: (texts,) the row of each text's first window.
    """

    recording: Recording
    first: NDArray[np.intp]

    @property
    def num_windows(self) -> NDArray[np.intp]:
        """(texts,) how many windows each text has."""
        return np.diff(self.first, append=self.recording.logits.shape[1])

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (texts,) the mean of values over each text's windows."""
        sums: NDArray[np.float64] = np.add.reduceat(values, self.first, dtype=np.float64)
        return sums / self.num_windows


class Texts(NamedTuple):
    """Texts in some order.

    Attributes:
        parts: the texts, in parts of one width.
        profiles: (texts,) name of the profile that has answered each; empty where it is not known.
    """

    parts: tuple[Part, ...]
    profiles: NDArray[np.str_]

    @classmethod
    def recorded(cls, recording: Recording) -> Self:
        """Return texts of one window each."""
        first = np.arange(recording.logits.shape[1])
        return cls((Part(recording, first),), np.zeros(0, np.str_))

    @classmethod
    def audited(
        cls, records: Sequence[AuditRecord], traits: Traits, temperatures: tuple[float, ...]
    ) -> Self:
        """Return the texts of audits of one model, the oldest first."""
        most = len(records)
        if traits.task == "token":
            records, most = sorted(records[-MOST_TAGGED:], key=_width), _MOST_PADDED
        starts = range(0, len(records), max(1, most))
        parts = [_part(records[i : i + most], traits, temperatures) for i in starts]
        return cls(tuple(parts), np.array([record.profile for record in records], np.str_))

    def __len__(self) -> int:
        return sum(len(part.first) for part in self.parts)


def _part(records: Sequence[AuditRecord], traits: Traits, temperatures: tuple[float, ...]) -> Part:
    rows = [row for record in records for row in record.rows]
    counted = None
    if traits.task == "token":
        width = max(_width(record) for record in records)
        rows = [_padded(row, width) for row in rows]
        counted = np.stack([row.counted for row in rows if row.counted is not None])
    logits = np.stack([row.logits for row in rows], axis=1)
    errors = [row.uncertainty for row in rows if row.uncertainty is not None]
    uncertainty = np.stack(errors, axis=1) if len(errors) == len(rows) else None
    sizes = [len(record.rows) for record in records]
    first = np.cumsum([0, *sizes[:-1]])
    return Part(Recording(traits, temperatures, logits, counted, uncertainty), first)


def _width(record: AuditRecord) -> int:
    return max(len(row.logits[0]) for row in record.rows)


def _padded(row: RowLogits, width: int) -> RowLogits:
    assert row.counted is not None
    more = width - len(row.counted)
    logits = np.pad(row.logits, ((0, 0), (0, more), (0, 0)))
    return row._replace(logits=logits, counted=np.pad(row.counted, (0, more)))
