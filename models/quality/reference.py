"""`--reference`: another classifier, whose answers a model's are compared with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.data.answer_file import read_answer_file
from models.data.columns import KNOWN, Columns
from models.data.label_ids import label_order
from models.errors import UnusableData
from models.quality.model import open_models
from models.quality.recorded import Recorded, recorded, shown_scores
from serve.bundle.loader import sha256_of
from serve.classifier.score_map import ScoreMap
from serve.policy.ladder import Reference
from serve.rules.replay import Logits
from serve.rules.traits import Traits, listed
from serve.tokenization.tokenizer import Text


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
        return ~(self._gaps(logits) <= (tolerance or 0.0))

    def difference(
        self, recorded: Recorded, logits: Logits, tolerance: float | None = None
    ) -> "Difference":
        """Return how far a model's answers are from the reference's; arguments as of `differs`.

        The scores of the logits are those that a client sees.
        """
        if recorded.traits.task == "regression":
            gaps = self._gaps(logits)
            share = None if tolerance is None else float((~(gaps <= tolerance)).mean())
            return Difference(share, float(np.nanmean(gaps)))
        share = float(self.differs(recorded, logits).mean())
        if not self.scored:
            return Difference(share, None)
        own = replace(recorded, logits=logits[None])
        pair = shown_scores(own, ScoreMap(None), self.logits)
        return Difference(share, float(np.nanmean(np.abs(pair[0] - pair[1]))))

    def of_full_depth(self, recorded: Recorded) -> str:
        """Return in a sentence how far a model's full depth is from the reference."""
        found, name = self.difference(recorded, recorded.logits[-1]), self.reference.name
        parts = []
        if found.answers is not None:
            parts.append(f"gives another answer than {name} for {100 * found.answers:.2f} %")
        if found.scores is not None:
            what = "value" if recorded.traits.task == "regression" else "score"
            parts.append(f"has a {what} that is {found.scores:.3f} from that of {name} in the mean")
        return f"on {recorded.num_rows} texts full depth {' and '.join(parts)}"

    def _gaps(self, logits: Logits) -> NDArray[np.float64]:
        return np.abs(logits[..., 0].astype(np.float64) - self.logits[..., 0])

    def _same_tokens(self, recorded: Recorded) -> bool:
        if recorded.counted is None or self.counted is None:
            return recorded.counted is self.counted
        return np.array_equal(recorded.counted, self.counted)


class Difference(NamedTuple):
    """How far a model's answers are from the reference's.

    Attributes:
        answers: share of texts with another answer; None of a regression without a tolerance.
        scores: mean difference of the scores of the model's answers, or of a regression's values;
            None where the reference's scores are not known.
    """

    answers: float | None
    scores: float | None


class OpenReference(NamedTuple):
    """A reference that can be asked.

    Attributes:
        reference: which one it is.
        ask: what it says of texts. It raises UnusableData if a file lacks an answer.
    """

    reference: Reference
    ask: Callable[[Sequence[Text]], ReferenceAnswers]


def open_reference(path: Path, traits: Traits, columns: Columns = KNOWN) -> OpenReference:
    """Open a bundle, a checkpoint of any format, or a file of answers.

    Args:
        path: folder or file.
        traits: of the model that is compared with it.
        columns: of the file, those that the user names.

    Raises:
        OfframpError: nothing that can be read, or of another task or with other labels.
    """
    if path.is_dir():
        return _of_folder(path, traits)
    file = read_answer_file(path, traits.task, traits.labels, columns)
    reference = Reference(name=path.name, sha256=sha256_of(path))
    return OpenReference(
        reference, lambda texts: ReferenceAnswers(reference, file.of(path, texts), file.scored)
    )


def _of_folder(path: Path, traits: Traits) -> OpenReference:
    (model,) = open_models((path,), ("auto",))
    name, source = path.resolve().name, model.source
    theirs = source.traits
    if theirs.task != traits.task:
        raise UnusableData(f"--reference {name}: its task is {theirs.task}, not {traits.task}")
    order = [0] if traits.task == "regression" else label_order(theirs.labels, traits.labels)
    if order is None:
        raise UnusableData(
            f"--reference {name}: its labels are {listed(theirs.labels)}; the model's are "
            f"{listed(traits.labels)}. A reference must have the same"
        )
    reference = Reference(name=name, sha256=source.sha256)

    def ask(texts: Sequence[Text]) -> ReferenceAnswers:
        found = recorded(source, texts)
        return ReferenceAnswers(reference, found.logits[-1][..., order], counted=found.counted)

    return OpenReference(reference, ask)
