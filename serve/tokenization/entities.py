"""From a label for every token to entities, as transformers' token classification pipeline does.

Tokens become words, and words of one kind in a row become entities. Labels may be tagged: B-PER
begins an entity, I-PER goes on with one; a label without a tag goes on with its like.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.tokenization.word_spans import Speller, Spelling

Aggregation: TypeAlias = Literal["none", "simple", "first", "average", "max"]
# Need to know where words begin, which token ids do not tell.
OF_WORDS: frozenset[Aggregation] = frozenset({"first", "average", "max"})

OUTSIDE = "O"

_Scores: TypeAlias = NDArray[np.float32]


class Entity(NamedTuple):
    """Tokens that belong together.

    Attributes:
        label: without a B- or I- where tokens have been put together.
        score: the label's probability, the mean over the words; of `simple`, over the tokens.
        word: what the tokens are written as.
        tokens: the first token's place among all, special ones included, and the place after the
            last one's.
        span: likewise in characters of the text; None where there is no text.
    """

    label: str
    score: float
    word: str
    tokens: tuple[int, int]
    span: tuple[int, int] | None


class _Parts(NamedTuple):
    """Tokens or words, in order: label ids, scores, how they are written, and tokens."""

    labels: NDArray[np.intp]
    scores: _Scores
    words: Sequence[str]
    first: NDArray[np.intp]
    last: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Tags:
    """The labels of a model, taken apart.

    Attributes:
        names: by label id.
        begins: (labels,) whether a label begins an entity, whatever stands before.
        kinds: (labels,) equal for labels that may go on with each other.
    """

    names: tuple[str, ...]
    begins: NDArray[np.bool_]
    kinds: NDArray[np.intp]

    @classmethod
    def of(cls, names: tuple[str, ...]) -> "_Tags":
        tagged = [name[:2] in ("B-", "I-") for name in names]
        bare = [name[2:] if tag else name for name, tag in zip(names, tagged, strict=True)]
        begins = np.array([name.startswith("B-") for name in names])
        return cls(names, begins, np.unique(bare, return_inverse=True)[1])


class EntityReader:
    """Reads entities from the logits of one model's tokens."""

    def __init__(self, labels: tuple[str, ...], speller: Speller) -> None:
        self._tags = _Tags.of(labels)
        self._speller = speller

    def read(
        self,
        logits: NDArray[np.float32],
        counted: NDArray[np.bool_],
        spelling: Spelling,
        aggregation: Aggregation,
    ) -> list[Entity]:
        """Return the entities of one text, in order; what is labelled O is none.

        Args:
            logits: (tokens, labels).
            counted: (tokens,) without special tokens.
            spelling: of the same tokens.
            aggregation: `none`: every token for itself; `simple`: neighbours of one kind together;
                `first`, `average`, `max`: likewise, but a word's tokens agree, on what its first
                token says, on the mean of their probabilities, or on what the surest one says.
        """
        places = np.flatnonzero(counted)
        if not len(places):
            return []
        p = _probabilities(logits[places])
        if aggregation in OF_WORDS:
            parts = self._words(p, places, spelling, aggregation)
        else:
            labels = p.argmax(axis=1)
            words = [spelling.pieces[place] for place in places.tolist()]
            parts = _Parts(labels, p[np.arange(len(p)), labels], words, places, places)
        if aggregation == "none":
            return self._one_by_one(parts, spelling)
        return self._together(parts, spelling)

    def _words(
        self, p: _Scores, places: NDArray[np.intp], spelling: Spelling, aggregation: Aggregation
    ) -> _Parts:
        begins = ~spelling.continues[places]
        begins[0] = True
        first = np.flatnonzero(begins)
        ends = np.append(first[1:], len(places))
        p_of_word = _AGREED[aggregation](p, first)
        labels = p_of_word.argmax(axis=1)
        pieces = [spelling.pieces[place] for place in places.tolist()]
        bounds = zip(first.tolist(), ends.tolist(), strict=True)
        words = [self._speller.join(pieces[start:end]) for start, end in bounds]
        scores = p_of_word[np.arange(len(labels)), labels]
        return _Parts(labels, scores, words, places[first], places[ends - 1])

    def _one_by_one(self, parts: _Parts, spelling: Spelling) -> list[Entity]:
        names = self._tags.names
        found = np.array([name != OUTSIDE for name in names])[parts.labels].nonzero()[0]
        return [
            _entity(
                names[parts.labels[i]], parts.scores[i], parts.words[i], (i, i), parts, spelling
            )
            for i in found.tolist()
        ]

    def _together(self, parts: _Parts, spelling: Spelling) -> list[Entity]:
        tags = self._tags
        kinds = tags.kinds[parts.labels]
        begins = np.append(True, tags.begins[parts.labels[1:]] | (kinds[1:] != kinds[:-1]))
        firsts = begins.nonzero()[0]
        lasts = np.append(firsts[1:], len(kinds)) - 1
        scores = np.add.reduceat(parts.scores, firsts) / (lasts - firsts + 1)
        entities = []
        for first, last, score in zip(firsts.tolist(), lasts.tolist(), scores, strict=True):
            name = tags.names[parts.labels[first]].split("-", 1)[-1]
            if name != OUTSIDE:
                word = self._speller.join(parts.words[first : last + 1])
                entities.append(_entity(name, score, word, (first, last), parts, spelling))
        return entities


def _entity(
    label: str,
    score: np.floating,
    word: str,
    reach: tuple[int, int],
    parts: _Parts,
    spelling: Spelling,
) -> Entity:
    """Return the entity that reaches from one part to another."""
    first, last = int(parts.first[reach[0]]), int(parts.last[reach[1]])
    spans = spelling.spans
    span = None if spans is None else (int(spans[first, 0]), int(spans[last, 1]))
    return Entity(label, float(score), word, (first, last + 1), span)


def _probabilities(logits: NDArray[np.float32]) -> _Scores:
    """Return the softmax over labels, computed as the pipeline does: ties must fall alike."""
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p: _Scores = e / e.sum(axis=-1, keepdims=True)
    return p


def _of_the_first(p: _Scores, first: NDArray[np.intp]) -> _Scores:
    return p[first]


def _average(p: _Scores, first: NDArray[np.intp]) -> _Scores:
    num_tokens = np.diff(np.append(first, len(p)))
    total = p[first].copy()
    # One token of every word after another, and rounded once at the end, as the pipeline does.
    for nth in range(1, int(num_tokens.max())):
        longer = num_tokens > nth
        total[longer] += p[first[longer] + nth]
    mean: _Scores = (total.astype(np.float64) / num_tokens[:, None]).astype(np.float32)
    return mean


def _of_the_surest(p: _Scores, first: NDArray[np.intp]) -> _Scores:
    """Return what the surest token of each word says; of equals the first."""
    top = p.max(axis=1)
    word = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(p))))
    surest = np.lexsort((np.arange(len(p)), -top, word))
    return p[surest[first]]


_AGREED: dict[Aggregation, Callable[[_Scores, NDArray[np.intp]], _Scores]] = {
    "first": _of_the_first,
    "average": _average,
    "max": _of_the_surest,
}
