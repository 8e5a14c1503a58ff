"""Entities in BIO tags, and their F1; an entity counts if both ends and the type are right."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Entity(NamedTuple):
    """The words from `start` up to, not including, `end`, with their entity type."""

    start: int
    end: int
    type: str


def are_entity_tags(labels: Iterable[str]) -> bool:
    """Tell whether tags are BIO tags: O, and B- or I- with a type."""
    names = set(labels)
    return "O" in names and all(name == "O" or name[:2] in ("B-", "I-") for name in names)


def entities_of(tags: Iterable[str]) -> list[Entity]:
    """Return the entities of a sentence.

    An I- tag that continues no entity begins one, as in the evaluation of CoNLL-2000.
    """
    found: list[Entity] = []
    start, kind = 0, ""
    # A final O ends an entity that is still open.
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
        found: predicted tags per sentence.
        gold: correct tags per sentence.
    """
    total = correct = 0
    for found_tags, gold_tags in zip(found, gold, strict=True):
        predicted, expected = set(entities_of(found_tags)), set(entities_of(gold_tags))
        total += len(predicted) + len(expected)
        correct += len(predicted & expected)
    return 2 * correct / total if total else 0.0
