"""What another classifier, the reference, says of recorded texts."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from models.errors import UnusableData
from models.recorded.recorded import Recorded
from models.recorded.score_gaps import score_gaps, shown_scores
from serve.classifier.score_map import ScoreMap
from serve.policy.ladder import Reference
from serve.rules.replay import Logits


@dataclass(frozen=True, eq=False)
class ReferenceAnswers:
    """A reference's answers, in the order of the texts.

    Attributes:
        reference: which one it is.
        logits: (rows, labels) or (rows, tokens, labels), the labels in the model's order.
        scored: whether its scores are known; else only its answers are, and logits just say them.
        counted: (rows, tokens) of a tagger: the tokens that have an answer.
    """

    reference: Reference
    logits: Logits
    scored: bool = True
    counted: NDArray[np.bool_] | None = None

    def of(self, rows: NDArray[np.intp] | slice) -> Self:
        """Return the answers to some of the texts."""
        counted = None if self.counted is None else self.counted[rows]
        return replace(self, logits=self.logits[rows], counted=counted)

    def differs(
        self, recorded: Recorded, logits: Logits, tolerance: float | None = None
    ) -> NDArray[np.bool_]:
        """Return (rows,) whether a model's answers are other than the reference's.

        Args:
            recorded: of the same texts.
            logits: the model's, (rows, ...).
            tolerance: of a regression: values further apart differ; NaN is near nothing.

        Raises:
            UnusableData: the reference reads other tokens than the model, which labels tokens.
        """
        if not self._same_tokens(recorded):
            raise UnusableData(
                f"--reference {self.reference.name}: its tokenizer splits texts otherwise than the "
                "model's, so that tags of tokens cannot be compared"
            )
        if recorded.traits.task != "regression":
            found: NDArray[np.bool_] = recorded.numbered(logits) != recorded.numbered(self.logits)
            return found
        gaps = np.abs(logits[..., 0].astype(np.float64) - self.logits[..., 0])
        return ~(gaps <= (tolerance or 0.0))

    def _same_tokens(self, recorded: Recorded) -> bool:
        if recorded.counted is None or self.counted is None:
            return recorded.counted is self.counted
        return np.array_equal(recorded.counted, self.counted)

    def score_gaps(self, recorded: Recorded, scores: ScoreMap) -> NDArray[np.float32]:
        """Return (exits, rows) the largest difference of any of a text's scores; see there."""
        return score_gaps(recorded, scores, self.logits)


class Difference(NamedTuple):
    """How far a model's answers are from the reference's.

    Attributes:
        disagreement: share of texts with another answer; None of a regression without a tolerance.
        scores: mean difference of the scores of the model's answers, or of a regression's values;
            None where the reference's scores are not known.
    """

    disagreement: float | None
    scores: float | None


def difference(
    answers: ReferenceAnswers,
    recorded: Recorded,
    logits: Logits,
    tolerance: float | None = None,
) -> Difference:
    """Compare answers with the reference's.

    Args:
        answers: the reference's.
        recorded: of the same texts.
        logits: the model's, (rows, ...), whose scores are those that a client sees.
        tolerance: of a regression: values further apart differ.
    """
    if recorded.traits.task == "regression":
        gaps = np.abs(logits[..., 0].astype(np.float64) - answers.logits[..., 0])
        share = None if tolerance is None else float((~(gaps <= tolerance)).mean())
        return Difference(share, float(np.nanmean(gaps)))
    share = float(answers.differs(recorded, logits).mean())
    if not answers.scored:
        return Difference(share, None)
    own = replace(recorded, logits=logits[None])
    pair = shown_scores(own, ScoreMap(None), answers.logits)
    return Difference(share, float(np.nanmean(np.abs(pair[0] - pair[1]))))


def full_depth_compared(answers: ReferenceAnswers, recorded: Recorded) -> str:
    """Return in a sentence how far full depth is from the reference."""
    found, name = difference(answers, recorded, recorded.logits[-1]), answers.reference.name
    parts = []
    if found.disagreement is not None:
        parts.append(f"gives another answer than {name} for {100 * found.disagreement:.2f} %")
    if found.scores is not None:
        what = "value" if recorded.traits.task == "regression" else "score"
        parts.append(f"has a {what} that is {found.scores:.3f} from that of {name} in the mean")
    return f"on {recorded.num_rows} texts full depth {' and '.join(parts)}"
