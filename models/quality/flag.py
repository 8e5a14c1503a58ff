"""Which texts every exit flags, as the server's own flagger says."""

import math

import numpy as np
from numpy.typing import NDArray

from models.quality.recorded import Recorded
from serve.classifier.flagger import Flagger
from serve.classifier.score_map import ScoreMap
from serve.engine.row import Answer
from serve.policy.flag import AnyFlag
from serve.rules.criterion import Reason
from serve.tokenization.entities import EntityReader
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.word_spans import NoWords, WordSpans

_NO_IDS = np.zeros(0, np.int64)


def flagged(recorded: Recorded, flag: AnyFlag, scores: ScoreMap) -> NDArray[np.bool_]:
    """Return (exits, rows) whether an exit's answer is flagged.

    Args:
        recorded: of a model that can flag by these labels.
        flag: thresholds by label.
        scores: maps the exits' scores to those that answers show.
    """
    traits = recorded.traits
    reader = EntityReader(traits.labels, NoWords()) if traits.task == "token" else None
    flagger = Flagger(flag, traits, reader)
    tokens = [_tokens(recorded, row) for row in range(recorded.num_rows)]
    found = np.zeros(recorded.logits.shape[:2], np.bool_)
    for index, of_exit in enumerate(recorded.logits):
        for row, logits in enumerate(of_exit):
            answer = Answer(logits, index, Reason.CONFIDENT, math.nan, 0.0, 0.0, index)
            found[index, row] = bool(flagger.flags(scores.answer(answer), tokens[row]))
    return found


def _tokens(recorded: Recorded, row: int) -> Tokens:
    if recorded.counted is None:
        return Tokens(_NO_IDS, _NO_IDS)
    counted = recorded.counted[row]
    spans = WordSpans([""] * len(counted), None, np.zeros(len(counted), np.bool_))
    return Tokens(_NO_IDS, _NO_IDS, counted, spans)
