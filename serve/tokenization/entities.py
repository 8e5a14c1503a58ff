"""Groups labelled tokens into entities, as transformers' token classification pipeline does.

Tokens become words, and neighbouring words of one kind become an entity. Labels may have a tag:
B-PER begins an entity, I-PER continues one; a label without a tag continues an equal one.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serve.rules.traits import OUTSIDE, name_of, tags_of
from serve.tokenization.word_spans import WordSpanFinder, WordSpans

Aggregation: TypeAlias = Literal["none", "simple", "first", "average", "max"]
# For these it must be known where words begin, which token ids do not show.
OF_WORDS: frozenset[Aggregation] = frozenset({"first", "average", "max"})

_Scores: TypeAlias = NDArray[np.float32]


class Entity(NamedTuple):
    """Tokens that belong together.

    Attributes:
        label: without its B- or I- tag, unless the aggregation is `none`.
        score: the label's probability, the mean over the words; with `simple`, over the tokens.
        word: the text of the tokens.
        tokens: place of the first token among all, special ones included, and the place after
            the last token.
        span: the first character in the text, and the one after the last; None for token ids.
    """

    label: str
    score: float
    word: str
    tokens: tuple[int, int]
    span: tuple[int, int] | None


class _Parts(NamedTuple):
    """Labelled tokens or words, in order.

    Attributes:
        labels: (parts,) label ids.
        scores: (parts,) probabilities of the labels.
        words: (parts,) the text of each.
        first: (parts,) place of the first token.
        last: (parts,) place of the last token.
    """

    labels: NDArray[np.intp]
    scores: _Scores
    words: Sequence[str]
    first: NDArray[np.intp]
    last: NDArray[np.intp]


class EntityReader:
    """Reads entities from the logits of one model's tokens."""

    def __init__(self, labels: tuple[str, ...], finder: WordSpanFinder) -> None:
        self._tags = tags_of(labels)
        self._finder = finder

    def read(
        self,
        logits: NDArray[np.float32],
        counted: NDArray[np.bool_],
        word_spans: WordSpans,
        aggregation: Aggregation,
        score_logits: NDArray[np.float32] | None = None,
    ) -> list[Entity]:
        """Return the entities of one text, in order; tokens labelled O are left out.

        Args:
            logits: (tokens, labels).
            counted: (tokens,) which tokens are not special.
            word_spans: the same tokens as parts of words.
            aggregation: `none`: each token is an entity; `simple`: neighbours of one kind make
                an entity; `first`, `average`, `max`: as `simple`, but all tokens of a word get
                the label of its first token, of their mean probabilities, or of the token with
                the highest probability.
            score_logits: (tokens, labels) that scores are computed from, labels are not; None for
                the logits.
        """
        places = np.flatnonzero(counted)
        if not len(places):
            return []
        p = _probabilities(logits[places])
        shown = p
        if score_logits is not None and score_logits is not logits:
            shown = _probabilities(score_logits[places])
        if aggregation in OF_WORDS:
            parts = self._words(p, shown, places, word_spans, aggregation)
        else:
            labels = p.argmax(axis=1)
            words = [word_spans.pieces[place] for place in places.tolist()]
            parts = _Parts(labels, shown[np.arange(len(p)), labels], words, places, places)
        if aggregation == "none":
            return self._token_entities(parts, word_spans)
        return self._grouped_entities(parts, word_spans)

    def _words(
        self,
        p: _Scores,
        shown: _Scores,
        places: NDArray[np.intp],
        word_spans: WordSpans,
        aggregation: Aggregation,
    ) -> _Parts:
        begins = ~word_spans.continues[places]
        begins[0] = True
        first = np.flatnonzero(begins)
        ends = np.append(first[1:], len(places))
        of_words = _WORD_PROBABILITIES[aggregation]
        p_of_word = of_words(p, first, p)
        labels = p_of_word.argmax(axis=1)
        if shown is not p:
            p_of_word = of_words(p, first, shown)
        pieces = [word_spans.pieces[place] for place in places.tolist()]
        bounds = zip(first.tolist(), ends.tolist(), strict=True)
        words = [self._finder.join(pieces[start:end]) for start, end in bounds]
        scores = p_of_word[np.arange(len(labels)), labels]
        return _Parts(labels, scores, words, places[first], places[ends - 1])

    def _token_entities(self, parts: _Parts, word_spans: WordSpans) -> list[Entity]:
        names = self._tags.names
        inside = np.array([name != OUTSIDE for name in names])[parts.labels].nonzero()[0]
        return [
            _entity(
                names[parts.labels[i]], parts.scores[i], parts.words[i], (i, i), parts, word_spans
            )
            for i in inside.tolist()
        ]

    def _grouped_entities(self, parts: _Parts, word_spans: WordSpans) -> list[Entity]:
        tags = self._tags
        firsts = tags.firsts(parts.labels)
        lasts = np.append(firsts[1:], len(parts.labels)) - 1
        scores = np.add.reduceat(parts.scores, firsts) / (lasts - firsts + 1)
        entities = []
        for first, last, score in zip(firsts.tolist(), lasts.tolist(), scores, strict=True):
            name = name_of(tags.names[parts.labels[first]])
            if name != OUTSIDE:
                word = self._finder.join(parts.words[first : last + 1])
                entities.append(_entity(name, score, word, (first, last), parts, word_spans))
        return entities


def _entity(
    label: str,
    score: np.floating,
    word: str,
    ends: tuple[int, int],
    parts: _Parts,
    word_spans: WordSpans,
) -> Entity:
    """Return the entity from one part to another, both included."""
    first, last = int(parts.first[ends[0]]), int(parts.last[ends[1]])
    spans = word_spans.spans
    span = None if spans is None else (int(spans[first, 0]), int(spans[last, 1]))
    return Entity(label, float(score), word, (first, last + 1), span)


def _probabilities(logits: NDArray[np.float32]) -> _Scores:
    """Return the softmax over labels, computed as the pipeline does, so that ties agree."""
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p: _Scores = e / e.sum(axis=-1, keepdims=True)
    return p


def _of_first_token(p: _Scores, first: NDArray[np.intp], shown: _Scores) -> _Scores:
    return shown[first]


def _mean_of_tokens(p: _Scores, first: NDArray[np.intp], shown: _Scores) -> _Scores:
    num_tokens = np.diff(np.append(first, len(p)))
    total = shown[first].copy()
    # Summed token by token and rounded once at the end, as the pipeline does.
    for nth in range(1, int(num_tokens.max())):
        longer = num_tokens > nth
        total[longer] += shown[first[longer] + nth]
    mean: _Scores = (total.astype(np.float64) / num_tokens[:, None]).astype(np.float32)
    return mean


def _of_surest_token(p: _Scores, first: NDArray[np.intp], shown: _Scores) -> _Scores:
    """Return the row of each word's token with the highest probability, the first of equals."""
    top = p.max(axis=1)
    word = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(p))))
    surest = np.lexsort((np.arange(len(p)), -top, word))
    return shown[surest[first]]


# From (tokens, labels), the first token of each word, and what to show of the tokens that they
# choose, (tokens, labels), to (words, labels).
_WORD_PROBABILITIES: dict[Aggregation, Callable[[_Scores, NDArray[np.intp], _Scores], _Scores]] = {
    "first": _of_first_token,
    "average": _mean_of_tokens,
    "max": _of_surest_token,
}
