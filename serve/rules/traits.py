"""What of a model decides which exit rules it can follow, and how its logits are read.

Of a tagger that is also which kinds of entities its labels stand for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.rules.small import SmallModel, layers_taken, places

if TYPE_CHECKING:
    from serve.rules.rule import Rule

Task: TypeAlias = Literal["single_label", "multi_label", "regression", "token"]


@dataclass(frozen=True, slots=True)
class Traits:
    """A model as its exit rules see it.

    Attributes:
        exits: exit layers, ascending; the last is the model's depth.
        labels: label names by id; for a regression, the one name of its value.
        task: `single_label`: softmax over the labels; `multi_label`: a sigmoid for each;
            `regression`: the one logit is the value; `token`: softmax over the labels for
            every token.
        learned: whether the exit heads predict their own error (BERxiT).
        max_tokens: longest input, special tokens included; 0 where that is not known.
        score_temperatures: (layers, labels or 1) at which answers show the scores of `layers`;
            None for 1 throughout.
        table_temperature: at which the confidence of the model's table is read, see
            `serve.rules.table`; None without a table.
        small: the small model in front, see `serve.rules.small`; None without one.
    """

    exits: tuple[int, ...]
    labels: tuple[str, ...]
    task: Task = "single_label"
    learned: bool = False
    max_tokens: int = 0
    score_temperatures: tuple[tuple[float, ...], ...] | None = None
    table_temperature: float | None = None
    small: SmallModel | None = None

    @property
    def layers(self) -> tuple[int, ...]:
        """The layer of each place where a text can leave.

        These are the table, if the model has one, and the exits of the small model in front, all
        at layer 0; then the exits. Recordings, ladders and whatever else counts per exit have
        these places. The index of an exit counts from 0, and so those of the places before it are
        negative.
        """
        return places(self.exits, self.table_temperature is not None, self.small)

    @property
    def num_before(self) -> int:
        """How many places of `layers` are before the first exit."""
        return len(self.layers) - len(self.exits)

    @property
    def bare(self) -> "Traits":
        """The same model with its exits alone."""
        scores = self.score_temperatures and self.score_temperatures[self.num_before :]
        return replace(self, table_temperature=None, small=None, score_temperatures=scores)

    def layer_of(self, exit_index: int) -> int:
        """Return the layer of an exit, counted from 0; of what is before it, 0."""
        return self.exits[exit_index] if exit_index >= 0 else 0

    def small_layer(self, exit_index: int) -> int | None:
        """Return the layer of an exit of the small model; None of other places."""
        if self.small is None or not -len(self.small.exits) <= exit_index < 0:
            return None
        return self.small.exits[exit_index]

    def layers_taken(self, rule: "Rule") -> tuple[float, ...]:
        """Return what a rule's texts take until each place, see `serve.rules.small`."""
        return layers_taken(self.exits, self.table_temperature is not None, self.small, rule)


def listed(values: Iterable[object]) -> str:
    """Return values in words."""
    return ", ".join(map(str, values))


def logits_shape(traits: Traits) -> tuple[int, ...]:
    """Return the shape of one row's logits before any exit; tokens come with the first."""
    return (0, len(traits.labels)) if traits.task == "token" else (len(traits.labels),)


OUTSIDE = "O"


@dataclass(frozen=True, slots=True, eq=False)
class Tags:
    """The labels of a tagger, split into tag and kind.

    Attributes:
        names: names by label id.
        begins: (labels,) whether a label always begins an entity.
        kinds: (labels,) equal for labels that may continue each other.
    """

    names: tuple[str, ...]
    begins: NDArray[np.bool_]
    kinds: NDArray[np.intp]

    def firsts(
        self, labels: NDArray[np.intp], rows: NDArray[np.intp] | None = None
    ) -> NDArray[np.intp]:
        """Return where entities begin, and runs of tokens outside any.

        Args:
            labels: (tokens,) label ids of one or more tokens.
            rows: (tokens,) the texts that they are of, ascending; None for one text.
        """
        kinds = self.kinds[labels]
        begins = self.begins[labels[1:]] | (kinds[1:] != kinds[:-1])
        if rows is not None:
            begins |= rows[1:] != rows[:-1]
        return np.append(True, begins).nonzero()[0]


@lru_cache(maxsize=64)
def tags_of(names: tuple[str, ...]) -> Tags:
    """Return the labels of a tagger, split into tag and kind."""
    bare = [kind_of(name) for name in names]
    begins = np.array([name.startswith("B-") for name in names])
    return Tags(names, begins, np.unique(bare, return_inverse=True)[1])


def kind_of(label: str) -> str:
    """Return a token's label without its B- or I-: equal ones make one entity."""
    return label[2:] if label[:2] in ("B-", "I-") else label


def name_of(label: str) -> str:
    """Return what an entity of a token's label is called: what follows the first hyphen, if any.

    So does transformers. Labels of several kinds may share a name: B-PER, S-PER and E-PER.
    """
    return label.split("-", 1)[-1]


def flaggable(traits: Traits) -> tuple[str, ...]:
    """Return the labels that can flag: of tokens, the names of entities."""
    if traits.task != "token":
        return traits.labels
    names = dict.fromkeys(name_of(label) for label in traits.labels)
    return tuple(name for name in names if name != OUTSIDE)
