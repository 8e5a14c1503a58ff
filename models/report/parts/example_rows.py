"""Example texts, with what every exit says of them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.data.examples import Example
from models.quality.answers import are_entity_tags, decided, entities_of, tags_of
from models.quality.recorded import Recorded
from serve.rules import EntropyRule
from serve.rules.traits import Task, Traits

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


def chosen_rows(recorded: Recorded, count: int) -> Iterator[tuple[str, int]]:
    """Yield why and which texts are worth showing: so many of each kind, none twice.

    Hard and easy go by the mean entropy over the exits, of a regression by the mean error.
    Overthought are texts that most exits have right and the last one, surely, wrong.
    """
    trouble, overthought = _trouble(recorded), _overthought(recorded)
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


def example_row(recorded: Recorded, example: Example, why: str, row: int) -> ExampleRow:
    """Return what all exits say of a row, whose text is the example's."""
    traits, known = recorded.traits, why != GIVEN
    entropies = None if traits.task == "regression" else _entropies(recorded)[:, row]
    right = recorded.right[:, row] if known and recorded.right is not None else None
    errors = _errors(recorded)[:, row] / _range(recorded) if known and entropies is None else None

    def read(answer: Any) -> str:
        if traits.task == "token":
            return _entities(recorded, example, answer, row)
        return _READERS[traits.task](traits, answer)

    cells = [
        Cell(
            read(decided(traits, logits[row : row + 1])[0]),
            None if entropies is None else float(entropies[index]),
            None if right is None else bool(right[index]),
            None if errors is None else float(errors[index]),
        )
        for index, logits in enumerate(recorded.logits)
    ]
    gold = read(_gold(recorded)[row]) if known else None
    return ExampleRow(why, text_of(example), gold, tuple(cells))


def text_of(example: Example) -> str:
    """Return a text, or a pair of texts, on one line."""
    return " | ".join(part for part in (example.text_a, example.text_b) if part)


def _entropies(recorded: Recorded) -> NDArray[np.float32]:
    return recorded.signals(EntropyRule(threshold=0))


def _errors(recorded: Recorded) -> NDArray[np.float64]:
    values = recorded.logits[..., 0].astype(np.float64)
    return np.abs(values - _gold(recorded))


def _range(recorded: Recorded) -> float:
    return float(np.ptp(_gold(recorded))) or 1.0


def _trouble(recorded: Recorded) -> NDArray[np.float64]:
    """Return (rows,) how hard a text is."""
    if recorded.traits.task == "regression":
        return _errors(recorded).mean(axis=0)
    return _entropies(recorded).mean(axis=0).astype(np.float64)


def _overthought(recorded: Recorded) -> NDArray[np.float64]:
    """Return (rows,) how much was lost by going on; 0 or less where nothing was."""
    if len(recorded.traits.exits) < 2:
        return np.zeros(recorded.num_rows)
    if recorded.right is None:
        errors = _errors(recorded)
        return errors[-1] - errors[:-1].min(axis=0)
    right = recorded.right
    lost = ~right[-1] & right[:-1].any(axis=0)
    # The more exits were right the worse, then the surer the last one.
    sure = np.exp(-_entropies(recorded)[-1])
    return np.where(lost, right.sum(axis=0) + sure, 0.0)


def _gold(recorded: Recorded) -> NDArray[Any]:
    assert recorded.gold is not None
    return recorded.gold


def _label(traits: Traits, answer: int) -> str:
    return "none" if answer < 0 else traits.labels[answer]


def _labels(traits: Traits, answer: NDArray[Any]) -> str:
    marked = [name for name, mark in zip(traits.labels, answer, strict=True) if mark > 0.5]
    return ", ".join(marked) or "none"


def _value(traits: Traits, answer: float) -> str:
    return f"{float(answer):.2f}"


def _entities(recorded: Recorded, example: Example, answer: NDArray[Any], row: int) -> str:
    """Return the entities of a text's words, or its tags where these are no BIO tags."""
    tags = tags_of(recorded.traits, answer, _gold(recorded)[row])
    if not are_entity_tags(recorded.traits.labels):
        return " ".join(tags)
    words = example.label if isinstance(example.label, list) else []
    named = [
        f"{example.text_a[words[e.start].start : words[e.end - 1].end]} ({e.type})"
        for e in entities_of(tags)
    ]
    return ", ".join(named) or "none"


_READERS: dict[Task, Callable[[Traits, Any], str]] = {
    "single_label": _label,
    "multi_label": _labels,
    "regression": _value,
}
