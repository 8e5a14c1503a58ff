"""How logits are read as answers, by task."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.data.alignment import IGNORED
from serve.rules.replay import Logits
from serve.rules.signals import decisions
from serve.rules.traits import Traits
from serve.tokenization.entities import EntityReader
from serve.tokenization.word_spans import NoWords, WordSpans


def decided(traits: Traits, logits: Logits) -> NDArray[Any]:
    """Return logits as answers in the form of gold labels: label ids, marks or values."""
    if traits.task == "regression":
        return logits[..., 0]
    return decisions(traits.task, logits)


def read_answers(
    traits: Traits, logits: Logits, counted: NDArray[np.bool_] | None
) -> Iterable[Hashable]:
    """Return rows' answers: labels, sets of labels, or sets of entities as the server finds them.

    Args:
        traits: of a model that is no regression.
        logits: (rows, ...).
        counted: (rows, tokens) of taggers.
    """
    if traits.task == "token":
        assert counted is not None
        return _served_entities(traits.labels, logits, counted)
    answers = decisions(traits.task, logits).tolist()
    return answers if traits.task == "single_label" else map(tuple, answers)


def right_answers(traits: Traits, logits: Logits, gold: NDArray[Any]) -> NDArray[np.bool_]:
    """Return (rows,) whether answers are right: the label, all labels, or all entities.

    A tagger's entities are compared by words, which are tagged by their first token as in training.
    """
    found = decisions(traits.task, logits)
    if traits.task == "single_label":
        return np.asarray(found == gold)
    if traits.task == "multi_label":
        return np.asarray((found == (gold > 0.5)).all(axis=1))
    read: Callable[[list[str]], object] = entities_of if are_entity_tags(traits.labels) else list
    pairs = zip(found, gold, strict=True)
    return np.array(
        [read(tags_of(traits, ids, own)) == read(tags_of(traits, own, own)) for ids, own in pairs],
        np.bool_,
    )


def tags_of(traits: Traits, ids: NDArray[Any], gold: NDArray[Any]) -> list[str]:
    """Return the tags of a text's words; that of a word whose logits are NaN is empty.

    Args:
        traits: of a tagger.
        ids: (tokens,) tag ids.
        gold: (tokens,) correct tag ids.
    """
    names = (*traits.labels, "")
    return [names[tag] for tag in ids[gold != IGNORED]]


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


def _served_entities(
    labels: tuple[str, ...], logits: Logits, counted: NDArray[np.bool_]
) -> Iterable[Hashable]:
    reader, width = EntityReader(labels, NoWords()), counted.shape[1]
    spans = WordSpans([""] * width, None, np.zeros(width, np.bool_))
    for of_tokens, counts in zip(logits, counted, strict=True):
        found = reader.read(of_tokens, counts, spans, "simple")
        yield frozenset((entity.label, entity.tokens) for entity in found)
