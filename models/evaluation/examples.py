"""Example texts, with what every exit says of them."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.data.alignment import IGNORED
from models.data.examples import Example
from models.evaluation.answers import decided
from models.evaluation.entities import are_entity_tags, entities_of
from models.evaluation.observation import Observation
from serve.rules import EntropyRule
from serve.rules.traits import Task

HARDEST, EASIEST, OVERTHOUGHT, GIVEN = "hardest", "easiest", "most overthought", "given"


class Cell(NamedTuple):
    """What one exit says of a text.

    Attributes:
        answer: label, labels, value or entities.
        entropy: in nats; the mean over tokens, the largest over labels; None for a regression.
        right: None where the correct answer is not known, or for a regression.
        error: of a regression, as a share of the range of the correct values; else None.
    """

    answer: str
    entropy: float | None
    right: bool | None
    error: float | None = None


class ExampleRow(NamedTuple):
    """A text through all exits.

    Attributes:
        why: why it was chosen.
        text: of a pair, both with a bar between.
        gold: the correct answer; None where it is not known.
        cells: one per exit.
    """

    why: str
    text: str
    gold: str | None
    cells: tuple[Cell, ...]


def chosen_rows(observed: Observation, count: int) -> Iterator[tuple[str, int]]:
    """Yield why and which texts are worth showing: so many of each kind, none twice.

    Hard and easy go by the mean entropy over the exits, of a regression by the mean error.
    Overthought are texts that most exits have right and the last one, surely, wrong.
    """
    trouble, overthought = _trouble(observed), _overthought(observed)
    kinds = {
        OVERTHOUGHT: np.argsort(-overthought, kind="stable")[: int((overthought > 0).sum())],
        HARDEST: np.argsort(-trouble, kind="stable"),
        EASIEST: np.argsort(trouble, kind="stable"),
    }
    shown: set[int] = set()
    for why, order in kinds.items():
        fresh = [row for row in order.tolist() if row not in shown][:count]
        shown.update(fresh)
        yield from ((why, row) for row in fresh)


def example_row(observed: Observation, why: str, row: int) -> ExampleRow:
    """Return what all exits say of a row."""
    example, traits = observed.examples[row], observed.traits
    read = _READERS[traits.task]
    entropies = None if traits.task == "regression" else _entropies(observed)[:, row]
    known = why != GIVEN
    right = observed.answers.right[:, row] if known and observed.answers is not None else None
    errors = _errors(observed)[:, row] / _range(observed) if known and entropies is None else None
    cells = [
        Cell(
            read(observed, decided(traits, logits[row : row + 1])[0], row),
            None if entropies is None else float(entropies[index]),
            None if right is None else bool(right[index]),
            None if errors is None else float(errors[index]),
        )
        for index, logits in enumerate(observed.predictions.logits)
    ]
    gold = read(observed, observed.predictions.gold[row], row) if known else None
    return ExampleRow(why, text_of(example), gold, tuple(cells))


def text_of(example: Example) -> str:
    """Return a text, or a pair of texts, on one line."""
    return " | ".join(part for part in (example.text_a, example.text_b) if part)


def _entropies(observed: Observation) -> NDArray[np.float32]:
    return observed.signals(EntropyRule(threshold=0))


def _errors(observed: Observation) -> NDArray[np.float64]:
    values = observed.predictions.logits[..., 0].astype(np.float64)
    return np.abs(values - observed.predictions.gold)


def _range(observed: Observation) -> float:
    return float(np.ptp(observed.predictions.gold)) or 1.0


def _trouble(observed: Observation) -> NDArray[np.float64]:
    """Return (rows,) how hard a text is."""
    if observed.traits.task == "regression":
        return _errors(observed).mean(axis=0)
    return _entropies(observed).mean(axis=0).astype(np.float64)


def _overthought(observed: Observation) -> NDArray[np.float64]:
    """Return (rows,) how much was lost by going on; 0 or less where nothing was."""
    if len(observed.traits.exits) < 2:
        return np.zeros(observed.num_rows)
    if observed.answers is None:
        errors = _errors(observed)
        return errors[-1] - errors[:-1].min(axis=0)
    right = observed.answers.right
    lost = ~right[-1] & right[:-1].any(axis=0)
    # The more exits were right the worse, then the surer the last one.
    sure = np.exp(-_entropies(observed)[-1])
    return np.where(lost, right.sum(axis=0) + sure, 0.0)


def _label(observed: Observation, answer: object, row: int) -> str:
    return observed.traits.labels[int(answer)]  # type: ignore[call-overload]


def _labels(observed: Observation, answer: NDArray[np.float32], row: int) -> str:
    marked = [n for n, mark in zip(observed.traits.labels, answer, strict=True) if mark > 0.5]
    return ", ".join(marked) or "none"


def _value(observed: Observation, answer: float, row: int) -> str:
    return f"{float(answer):.2f}"


def _entities(observed: Observation, answer: NDArray[np.int64], row: int) -> str:
    """Return the entities of a text, or its tags where these are no BIO tags."""
    counts = observed.predictions.gold[row] != IGNORED
    tags = [observed.traits.labels[tag] for tag in answer[counts]]
    if not are_entity_tags(observed.traits.labels):
        return " ".join(tags)
    example = observed.examples[row]
    words = example.label if isinstance(example.label, list) else []
    named = [
        f"{example.text_a[words[e.start].start : words[e.end - 1].end]} ({e.type})"
        for e in entities_of(tags)
    ]
    return ", ".join(named) or "none"


_READERS: dict[Task, Callable[..., str]] = {
    "single_label": _label,
    "multi_label": _labels,
    "regression": _value,
    "token": _entities,
}
