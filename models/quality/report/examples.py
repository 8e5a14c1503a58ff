"""Example texts, with what every exit says of them."""

import math
import re
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.data.examples import Example
from models.quality.analysis import Analysis
from models.quality.answers import are_entity_tags, decided, entities_of, tags_of
from models.quality.page import Part, missing, table
from models.quality.recorded import Recorded
from models.quality.style import spread
from serve.rules import EntropyRule
from serve.rules.traits import Traits

TITLE = "Examples"
HARDEST, EASIEST, OVERTHOUGHT, GIVEN = "hardest", "easiest", "most overthought", "given"
_LEGEND = (
    "Each cell is an exit's answer, whether it is right (✓) or wrong (✗), and its entropy in "
    "nats{reduced}."
)
_REDUCED = {"token": ", the mean over the tokens", "multi_label": ", that of the least sure label"}
_MOST_EXITS, _MOST_CHARACTERS = 8, 240
# What Markdown would read as more than a character.
_MARKUP = re.compile(r"([\\`*_\[\]<>!~&])")


class Cell(NamedTuple):
    """What one exit says of a text.

    Attributes:
        answer: label, labels, value or entities.
        entropy: in nats; the mean over tokens, the largest over labels; None for a regression.
        right: None where the correct answer is not known, or for a regression.
    """

    answer: str
    entropy: float | None
    right: bool | None

    def __str__(self) -> str:
        mark = "" if self.right is None else " ✓" if self.right else " ✗"
        unknown = self.entropy is None or math.isnan(self.entropy)
        return f"{_plain(self.answer)}{mark}{'' if unknown else f' {self.entropy:.3f}'}"


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


def examples_part(analysis: Analysis, count: int) -> Part:
    """Return the table of examples.

    Args:
        analysis: of the data.
        count: texts of each kind that are taken from the data.
    """
    own, task = analysis.recorded.of_exits, analysis.recorded.traits.task
    exits = own.traits.exits
    rows = [
        example_row(own, analysis.examples[row], why, row) for why, row in chosen_rows(own, count)
    ]
    if analysis.given is not None:
        given, said = analysis.given
        rows += [example_row(said.of_exits, text, GIVEN, row) for row, text in enumerate(given)]
    if not rows:
        return missing(TITLE, "none were asked for")
    legend = _LEGEND.format(reduced=_REDUCED.get(task, ""))
    if task == "regression":
        legend = "Each cell is an exit's value."
    columns = spread(len(exits), _MOST_EXITS)
    head = ["", "text", "correct", *(f"layer {exits[i]}" for i in columns)]
    cells = [
        [row.why, _plain(row.text), _plain(row.gold or "-"), *(row.cells[i] for i in columns)]
        for row in rows
    ]
    figures = [{**row._asdict(), "cells": [cell._asdict() for cell in row.cells]} for row in rows]
    return Part(TITLE, [legend, table(head, cells)], figures)


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
    gold = _gold(recorded)[row]
    cells = [
        Cell(
            _read(traits, example, decided(traits, logits[row : row + 1])[0], gold),
            None if entropies is None else float(entropies[index]),
            None if right is None else bool(right[index]),
        )
        for index, logits in enumerate(recorded.logits)
    ]
    text = " | ".join(part for part in (example.text_a, example.text_b) if part)
    return ExampleRow(
        why, text, _read(traits, example, gold, gold) if known else None, tuple(cells)
    )


def _entropies(recorded: Recorded) -> NDArray[np.float32]:
    return recorded.signals(EntropyRule(threshold=0))


def _errors(recorded: Recorded) -> NDArray[np.float64]:
    return np.abs(recorded.logits[..., 0].astype(np.float64) - _gold(recorded))


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


def _read(traits: Traits, example: Example, answer: Any, gold: NDArray[Any]) -> str:
    """Return an answer in words; a tagger's are its entities, or its tags if they are no BIO."""
    if traits.task == "single_label":
        return "none" if answer < 0 else traits.labels[answer]
    if traits.task == "multi_label":
        marked = [name for name, mark in zip(traits.labels, answer, strict=True) if mark > 0.5]
        return ", ".join(marked) or "none"
    if traits.task == "regression":
        return f"{float(answer):.2f}"
    tags = tags_of(traits, answer, gold)
    if not are_entity_tags(traits.labels):
        return " ".join(tags)
    words = example.label if isinstance(example.label, list) else []
    named = [
        f"{example.text_a[words[e.start].start : words[e.end - 1].end]} ({e.type})"
        for e in entities_of(tags)
    ]
    return ", ".join(named) or "none"


def _plain(text: str) -> str:
    """Return a text's beginning, which Markdown shows as it is."""
    return _MARKUP.sub(r"\\\1", textwrap.shorten(text, _MOST_CHARACTERS, placeholder=" ..."))
