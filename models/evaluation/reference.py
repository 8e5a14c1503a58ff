"""`--reference`: another classifier whose answers a model's are compared with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.data.answer_file import read_answer_file
from models.data.columns import KNOWN, Columns
from models.data.label_ids import label_order
from models.errors import UnusableData
from models.evaluation.opening import open_models
from models.recorded import Source, recorded
from models.recorded.reference import ReferenceAnswers
from serve.bundle.loader import sha256_of
from serve.policy.ladder import Reference
from serve.rules.traits import Traits, listed
from serve.tokenization.tokenizer import Text

Ask = Callable[[Sequence[Text]], ReferenceAnswers]


@dataclass(frozen=True)
class OpenReference:
    """A reference that can be asked.

    Attributes:
        reference: which one it is.
        ask: what it says of texts. It raises UnusableData if a file lacks an answer.
    """

    reference: Reference
    ask: Ask


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
        (model,) = open_models((path,), ("auto",))
        return of_source(path.resolve().name, model.source, traits)
    file = read_answer_file(path, traits.task, traits.labels, columns)
    reference = Reference(name=path.name, sha256=sha256_of(path))
    return OpenReference(
        reference, lambda texts: ReferenceAnswers(reference, file.of(path, texts), file.scored)
    )


def of_source(name: str, source: Source, traits: Traits) -> OpenReference:
    """Return a model as a reference; see `open_reference`."""
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
