"""Entities of BIO tags: counted only if both ends and the type are right."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Entity(NamedTuple):
    """Words from `start` up to `end` that name a thing of a type."""

    start: int
    end: int
    type: str


def are_entity_tags(labels: Iterable[str]) -> bool:
    """Tell whether tags are BIO tags: O, and B- or I- with a type."""
    names = set(labels)
    return "O" in names and all(name == "O" or name[:2] in ("B-", "I-") for name in names)


def entities_of(tags: Iterable[str]) -> list[Entity]:
    """Return the entities of a sentence.

    An I- that continues nothing begins an entity, as in the evaluation of CoNLL-2000.
    """
    found: list[Entity] = []
    start, kind = 0, ""
    # One more word, outside, ends what is still open.
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, now = tag.partition("-")
        if kind and (prefix != "I" or now != kind):
            found.append(Entity(start, place, kind))
            kind = ""
        if now and not kind:
            start, kind = place, now
    return found


def entity_f1(found: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> float:
    """Return the F1 of entities over all sentences; 0 if there are none.

    Args:
        found: tags per sentence.
        gold: the right ones.
    """
    marked = right = 0
    for one, other in zip(found, gold, strict=True):
        said, true = set(entities_of(one)), set(entities_of(other))
        marked += len(said) + len(true)
        right += len(said & true)
    return 2 * right / marked if marked else 0.0
