"""Examples: texts with their correct answers."""

from typing import NamedTuple, TypeAlias, get_args

from serve.rules.traits import Task

TASKS: tuple[Task, ...] = get_args(Task)


class Word(NamedTuple):
    """A tagged word of a text: characters `start` up to, not including, `end`, and the tag's id."""

    start: int
    end: int
    tag: int


# A label's id; 1.0 or 0.0 for each label; a regression's value; or a text's tagged words.
Target: TypeAlias = int | tuple[float, ...] | float | list[Word]


class Example(NamedTuple):
    """One text, or a pair of texts, with the correct answer."""

    text_a: str
    text_b: str | None
    label: Target
