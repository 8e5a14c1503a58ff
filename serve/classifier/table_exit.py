"""The exit before the first layer: a text is judged as soon as its tokens are known."""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serve.engine.row import Answer, ExitRecord, Row
from serve.rules.criterion import Reason
from serve.rules.table import NgramTable, table_confidence
from serve.rules.traits import Traits


class TableExit:
    """What a model's table says of texts; it needs neither the queue nor the engine."""

    def __init__(self, table: NgramTable, traits: Traits) -> None:
        """Take the table of a model with these traits, which have its temperature."""
        assert traits.table_temperature is not None
        self._table, self._task, self._temperature = table, traits.task, traits.table_temperature
        self._index = -traits.num_before  # the first of the places before the exits

    def look(self, input_ids: NDArray[np.int64]) -> ExitRecord:
        """Return what the table says of a text; its confidence is the signal, NaN if not judged."""
        logits = self._table.logits(input_ids)
        return ExitRecord(
            self._index, logits, table_confidence(self._task, logits, self._temperature).item()
        )

    def answers(self, rows: Sequence[Row]) -> dict[int, Answer]:
        """Return the answers of the rows that leave before the first layer, by their tags."""
        found = ((row.tag, self.answer(row)) for row in rows)
        return {tag: answer for tag, answer in found if answer}

    def answer(self, row: Row) -> Answer | None:
        """Return the answer of a row that leaves before the first layer; None if it goes on."""
        least, index = row.rule.table, self._index
        if least is None:
            return None
        began_s = time.perf_counter()
        said = self.look(row.input_ids)
        trace = row.exit_trace
        if trace is not None:
            trace.append(said)
        if not said.signal >= float(np.float32(least)):
            return None
        took_s = time.perf_counter() - began_s
        figures = Reason.CONFIDENT, said.signal, 0.0, took_s
        return Answer(said.logits, index, *figures, index, exit_trace=trace or ())
