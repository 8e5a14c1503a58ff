"""The small model in front of the first layer: texts run through it before the large one.

A cascade: what an exit of the small model is sure of leaves there, with the labels of the large
one. All else goes on to the large model, tokenized anew for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from serve.bundle.loader import TOKENIZER, Bundle
from serve.classifier.exit_costs import Runner
from serve.engine.row import Answer, Row
from serve.engine.shape import ModelShape
from serve.errors import InvalidRequest
from serve.rules import ConfidenceRule
from serve.rules.criterion import Reason
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.inputs import Ids, Input, InputReader
from serve.tokenization.tokenizer import Tokens


class SmallRow(Row):
    """A text on its way through the small model.

    Attributes:
        behind: the row of the large model whose place it takes.
    """

    # No dataclass, which would take the field's slot in the place of the property.
    __slots__ = ("behind",)

    def __init__(self, behind: Row, exits: "SmallExits") -> None:
        """Take the place of a row with tokens for the small model."""
        assert behind.in_front is not None
        assert behind.rule.small is not None
        self.behind = behind
        super().__init__(
            *behind.in_front,
            exits.shape.compile(ConfidenceRule.model_validate(dict(behind.rule.small))),
            tag=behind.tag,
            deadline_s=behind.deadline_s,
            priority=behind.priority,
            ahead_tokens=behind.ahead_tokens,
            client=behind.client,
            exit_trace=None if behind.exit_trace is None else [],
            segment_trace=None if behind.segment_trace is None else [],
        )

    @property
    def cancelled(self) -> bool:
        """Whether the row behind is cancelled."""
        return self.behind.cancelled

    @cancelled.setter
    def cancelled(self, left: bool) -> None:
        """Ignore it: this row has no answer of its own."""


class SmallExits:
    """Reads texts for the small model, and its answers as the large one's.

    Attributes:
        shape: what an engine must know of the small model.
        max_tokens: texts of so many tokens or more go to the large model at once.
        order: the small model's id of each of the large one's labels.
    """

    def __init__(self, bundle: Bundle) -> None:
        """Take the bundle of a large model with a small one in front."""
        large, small = bundle.manifest, bundle.small
        assert small is not None
        assert large.small is not None
        manifest = small.manifest
        self.shape = ModelShape(manifest.traits.bare, large.small.temperatures, manifest.pad_id)
        self.max_tokens = manifest.max_tokens
        self._reader = InputReader(small.tokenizer_path, manifest)
        self._same_ids = large.files[TOKENIZER] == manifest.files[TOKENIZER]
        self.order = [manifest.labels.index(label) for label in large.labels]

    def read(self, inputs: Sequence[Input], plain: bool) -> list[Tokens | None]:
        """Return the tokens of inputs; None of those that go to the large model at once.

        These are long texts, and what the small model cannot read.

        Args:
            inputs: texts and ids that the large model takes.
            plain: see `InputReader.read`.
        """
        known = [i for i, each in enumerate(inputs) if self._same_ids or not isinstance(each, Ids)]
        found: list[Tokens | None] = [None] * len(inputs)
        for i, ids in zip(known, self._read([inputs[i] for i in known], plain), strict=True):
            found[i] = ids if ids and len(ids.input_ids) < self.max_tokens else None
        return found

    def _read(self, inputs: Sequence[Input], plain: bool) -> Sequence[Tokens | None]:
        try:
            return self._reader.read(inputs, truncate=True, plain=plain)
        except InvalidRequest:
            if len(inputs) == 1:
                return [None]
        return [tokens for each in inputs for tokens in self._read([each], plain)]

    def answer(self, row: SmallRow, result: Answer) -> Answer:
        """Return the small model's answer as the large one's; its reason is final if it goes on.

        What a row has recorded in the small model is put down in the row behind it.
        """
        behind, num_exits = row.behind, len(self.shape.exits)
        behind.admitted_s, behind.started_s = row.admitted_s, row.started_s
        if row.segment_trace and behind.segment_trace is not None:
            behind.segment_trace += [
                run._replace(exit_index=run.exit_index - num_exits) for run in row.segment_trace
            ]
        if behind.exit_trace is not None:
            behind.exit_trace += [
                each._replace(
                    exit_index=each.exit_index - num_exits, logits=each.logits[self.order]
                )
                for each in result.exit_trace
            ]
        assert behind.rule.small is not None
        least = float(np.float32(behind.rule.small.threshold))
        reason, index = result.reason, result.exit_index - num_exits
        if reason is not Reason.DEADLINE:
            reason = Reason.CONFIDENT if result.signal >= least else Reason.FINAL
        return result._replace(
            logits=result.logits[self.order],
            exit_index=index,
            head_index=index,
            reason=reason,
            exit_trace=behind.exit_trace or (),
        )


class OpenSmall(NamedTuple):
    """A small model in front that can run."""

    exits: SmallExits
    runner: Runner


def open_small(
    bundle: Bundle, placement: Placement, num_threads: int, gpu_memory_gb: float | None = None
) -> OpenSmall | None:
    """Load the small model in front of a bundle's, to run where that runs; None without one."""
    if bundle.small is None:
        return None
    runner = build_runner(bundle.small, placement, num_threads, gpu_memory_gb)
    return OpenSmall(SmallExits(bundle), runner)
