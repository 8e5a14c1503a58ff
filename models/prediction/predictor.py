"""Texts to predictions, through the engine of the server."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from models.errors import TrainingFailed
from models.prediction.opening import OpenModel
from models.quality.costs import MFLOPS
from serve.classifier.small_exits import SmallExits, SmallRow
from serve.dialects.v1.answer import LabelOutput, RegressionOutput, TaskOutput, TokenOutput
from serve.engine.core import EngineCore
from serve.engine.row import Answer, Row
from serve.engine.runner import ModelRunner
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.errors import InvalidRequest, OfframpError
from serve.rules.criterion import Reason
from serve.tokenization.entities import EntityReader
from serve.tokenization.tokenizer import Text, Tokens


class Prediction(NamedTuple):
    """What a text was answered.

    Attributes:
        result: the answer, as a result of `/v1/classify`.
        exit_layer: where the text left; 0 before the first layer.
        layers: that it has taken, see `Traits.layers_taken`.
        exits_asked: layers of the exits whose heads ran, ascending.
        num_tokens: special ones included.
        mflops: of what ran; None where the model's operations are not known.
    """

    result: dict[str, Any]
    exit_layer: int
    layers: float
    exits_asked: tuple[int, ...]
    num_tokens: int
    mflops: float | None


class Predictor:
    """Answers the texts of a file, in order."""

    def __init__(self, model: OpenModel) -> None:
        """Take a model; its runner is used by this object alone."""
        self._model = model
        # A clock that stands still: batches then depend on the texts alone, and so do answers.
        self._core = _core(model.runner, model.shape)
        self._small_core = model.small and _core(model.small.runner, model.small.exits.shape)
        self._output = _output(model)

    def predict(self, texts: Sequence[Text], first: int = 0) -> list[Prediction]:
        """Run texts until each leaves; longer ones are cut.

        Args:
            texts: one or more.
            first: place of the first one in the file, for messages.

        Raises:
            OfframpError: a text cannot be read, or the model gives no number.
        """
        model, tokens = self._model, self._read(texts, first)
        traits = model.shape.traits
        answers = self._answers(
            [
                Row(
                    t.input_ids,
                    t.token_type_ids,
                    model.rule,
                    place,
                    admitted_s=0.0,
                    counted=t.counted,
                )
                for place, t in enumerate(tokens)
            ],
            texts,
            first,
        )
        results = self._output.results([model.scores.answer(a) for a in answers], tokens)
        lengths = np.array([len(t.input_ids) for t in tokens])
        exits = np.array([a.exit_index for a in answers])
        mflops: list[float | None] = [None] * len(texts)
        if model.flops:
            costs = model.flops.by_exit(lengths, traits.exits)[MFLOPS].after(traits.num_before)
            mflops = costs.of(exits + traits.num_before, model.rule).tolist()
        layers = map(traits.layer_of, exits.tolist())
        taken = np.array(traits.layers_taken(model.rule.rule), np.float64)[
            exits + traits.num_before
        ]
        asked = [self._asked(index) for index in exits.tolist()]
        own = results, layers, taken.tolist(), asked, lengths.tolist(), mflops
        return list(map(Prediction, *own))

    def _read(self, texts: Sequence[Text], first: int) -> list[Tokens]:
        try:
            return self._model.source.read(texts)
        except InvalidRequest as error:
            # It counts the texts that it was given.
            place = re.compile(r"^inputs\[(\d+)\]")
            said = place.sub(lambda found: f"text {first + int(found[1])}", str(error))
            raise TrainingFailed(said) from None

    def _answers(self, rows: list[Row], texts: Sequence[Text], first: int) -> list[Answer]:
        found: dict[int, Answer | OfframpError] = {}
        if self._model.table:
            at_table = ((row.tag, self._model.table.answer(row)) for row in rows)
            found = {place: answer for place, answer in at_table if answer}
        further = [row for row in rows if row.tag not in found]
        if self._model.small and self._model.rule.small is not None:
            found |= self._in_front(self._model.small.exits, further, texts)
            further = [row for row in further if row.tag not in found]
        found |= _run(self._core, further)
        answers = []
        for place in range(len(rows)):
            answer = found[place]
            if isinstance(answer, OfframpError):
                raise TrainingFailed(f"text {first + place}: {answer}")
            answers.append(answer)
        return answers

    def _in_front(
        self, exits: SmallExits, rows: Sequence[Row], texts: Sequence[Text]
    ) -> dict[int, Answer | OfframpError]:
        """Return what the small model answers, by place."""
        tokens = exits.read([texts[row.tag] for row in rows], self._model.source.plain)
        first: dict[int, SmallRow] = {}
        for row, own in zip(rows, tokens, strict=True):
            if own:
                row.in_front = own.input_ids, own.token_type_ids
                first[row.tag] = SmallRow(row, exits)
                first[row.tag].admitted_s = 0.0
        assert self._small_core is not None
        found: dict[int, Answer | OfframpError] = {}
        for place, result in _run(self._small_core, [*first.values()]).items():
            if not isinstance(result, Answer):
                found[place] = result
            elif (answer := exits.answer(first[place], result)).reason is not Reason.FINAL:
                found[place] = answer
        return found

    def _asked(self, exit_index: int) -> tuple[int, ...]:
        if exit_index < 0:
            return ()
        heard = min(self._model.rule.first_heard, exit_index)
        return self._model.shape.exits[heard : exit_index + 1]


def _core(runner: ModelRunner, shape: ModelShape) -> EngineCore:
    return EngineCore(runner, shape, BatchLimits(), lambda: 0.0, lambda stats: None)


def _run(core: EngineCore, rows: Sequence[Row]) -> dict[int, Answer | OfframpError]:
    """Return the outcome of every row, by its tag."""
    found: dict[int, Answer | OfframpError] = {}
    core.add(rows)
    while core:
        found |= {outcome.row.tag: outcome.result for outcome in core.step()}
    return found


def _output(model: OpenModel) -> TaskOutput:
    traits = model.shape.traits
    if traits.task == "token":
        return TokenOutput(EntityReader(traits.labels, model.words), "simple")
    if traits.task == "regression":
        return RegressionOutput()
    several = traits.task == "multi_label"
    return LabelOutput(traits.labels, None, "sigmoid" if several else "softmax")
