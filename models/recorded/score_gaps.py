"""How far the scores that are shown at early exits lie from full depth's."""

import numpy as np
from numpy.typing import NDArray

from models.recorded.recorded import Recorded
from serve.classifier.score_map import ScoreMap
from serve.rules.multipart import decisions, probabilities
from serve.rules.replay import Logits


def shown_scores(
    recorded: Recorded, scores: ScoreMap, compared: Logits | None = None
) -> NDArray[np.float32]:
    """Return the score of every exit's answer, as a client sees it, and full depth's of the same.

    Of several labels there is a score for each; of tokens, one for the tag of each.

    Args:
        recorded: of a model that is no regression.
        scores: of the same exits.
        compared: logits of another model, whose scores take the place of full depth's.

    Returns:
        (2, exits, rows, parts): the exit's, and full depth's; NaN where a token does not count.
    """
    task = recorded.traits.task
    full = probabilities(task, recorded.logits[-1] if compared is None else compared)
    pairs = []
    for index, logits in enumerate(recorded.logits):
        own = probabilities(task, scores.logits(logits, index))
        pair = np.stack([own, full])
        if task != "multi_label":
            answer = np.maximum(decisions(task, logits), 0)[None, ..., None]
            pair = np.take_along_axis(pair, answer, axis=-1)
        if recorded.counted is not None:
            pair = np.where(recorded.counted[None, ..., None], pair, np.nan)[..., 0]
        pairs.append(pair)
    return np.stack(pairs, axis=1)


def score_gaps(
    recorded: Recorded, scores: ScoreMap, compared: Logits | None = None
) -> NDArray[np.float32]:
    """Return (exits, rows) the largest difference of any of a text's scores; see `shown_scores`."""
    own, full = shown_scores(recorded, scores, compared)
    gaps: NDArray[np.float32] = np.nan_to_num(np.abs(own - full)).max(axis=-1, initial=0)
    return gaps
