"""Texts to predictions, through the engine of the server."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from models.errors import TrainingFailed
from models.prediction.opening import OpenModel
from models.quality.costs import MFLOPS
from serve.dialects.v1.answer import LabelOutput, RegressionOutput, TaskOutput, TokenOutput
from serve.engine.core import EngineCore
from serve.engine.row import Answer, Row
from serve.engine.scheduler import BatchLimits
from serve.errors import InvalidRequest, OfframpError
from serve.tokenization.entities import EntityReader
from serve.tokenization.tokenizer import Text, Tokens


class Prediction(NamedTuple):
    """What a text was answered.

    Attributes:
        result: the answer, as a result of `/v1/classify`.
        exit_layer: where the text left; 0 before the first layer.
        exits_asked: layers of the exits whose heads ran, ascending.
        num_tokens: special ones included.
        mflops: of what ran; None where the model's operations are not known.
    """

    result: dict[str, Any]
    exit_layer: int
    exits_asked: tuple[int, ...]
    num_tokens: int
    mflops: float | None


class Predictor:
    """Answers the texts of a file, in order."""

    def __init__(self, model: OpenModel) -> None:
        """Take a model; its runner is used by this object alone."""
        self._model = model
        # A clock that stands still: batches then depend on the texts alone, and so do answers.
        self._core = EngineCore(
            model.runner, model.shape, BatchLimits(), lambda: 0.0, lambda stats: None
        )
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
            first,
        )
        results = self._output.results([model.scores.answer(a) for a in answers], tokens)
        lengths = np.array([len(t.input_ids) for t in tokens])
        exits = np.array([a.exit_index for a in answers])
        mflops: list[float | None] = [None] * len(texts)
        if model.flops:
            costs = model.flops.by_exit(lengths, model.shape.exits)[MFLOPS].after_table()
            mflops = costs.of(exits + costs.before, model.rule).tolist()
        layers = map(model.shape.traits.layer_of, exits.tolist())
        asked = [self._asked(index) for index in exits.tolist()]
        return list(map(Prediction, results, layers, asked, lengths.tolist(), mflops))

    def _read(self, texts: Sequence[Text], first: int) -> list[Tokens]:
        try:
            return self._model.source.read(texts)
        except InvalidRequest as error:
            # It counts the texts that it was given.
            place = re.compile(r"^inputs\[(\d+)\]")
            said = place.sub(lambda found: f"text {first + int(found[1])}", str(error))
            raise TrainingFailed(said) from None

    def _answers(self, rows: list[Row], first: int) -> list[Answer]:
        found: dict[int, Answer | OfframpError] = {}
        if self._model.table:
            at_table = ((row.tag, self._model.table.answer(row)) for row in rows)
            found = {place: answer for place, answer in at_table if answer}
        self._core.add([row for row in rows if row.tag not in found])
        while self._core:
            found |= {outcome.row.tag: outcome.result for outcome in self._core.step()}
        answers = []
        for place in range(len(rows)):
            answer = found[place]
            if isinstance(answer, OfframpError):
                raise TrainingFailed(f"text {first + place}: {answer}")
            answers.append(answer)
        return answers

    def _asked(self, exit_index: int) -> tuple[int, ...]:
        heard = min(self._model.rule.first_heard, exit_index)
        return self._model.shape.exits[heard : exit_index + 1]


def _output(model: OpenModel) -> TaskOutput:
    traits = model.shape.traits
    if traits.task == "token":
        return TokenOutput(EntityReader(traits.labels, model.words), "simple")
    if traits.task == "regression":
        return RegressionOutput()
    several = traits.task == "multi_label"
    return LabelOutput(traits.labels, None, "sigmoid" if several else "softmax")
