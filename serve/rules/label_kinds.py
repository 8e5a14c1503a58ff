"""What labels are about: of tokens, the kinds of entities, told by labels with a tag B- or I-."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from serve.rules.traits import Traits

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
