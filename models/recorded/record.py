"""Running texts through all exits of a model, once."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from models.data.alignment import IGNORED, tag_tokens
from models.data.examples import Example, Target
from models.recorded.recorded import Gold, Recorded
from models.recorded.sources import Source
from serve.engine.runner import Ids, StepOutput
from serve.tokenization.tokenizer import Text, Tokens

ROWS_PER_BATCH = 32


def recorded(
    source: Source,
    texts: Sequence[Text],
    labels: Sequence[Target] | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Recorded:
    """Run every text through all exits, in batches of similar length; long texts are cut.

    Args:
        source: the model.
        texts: one or more.
        labels: the correct answers, if they are known.
        advance: called after each batch with its number of rows.

    Raises:
        InvalidRequest: a text has no tokens, or is a pair that the model does not take.
    """
    tokens = source.read(texts)
    found = _empty(source, tokens, None if labels is None else _gold(source, texts, labels, tokens))
    with source.running() as run:
        for rows in _by_length(found.num_tokens):
            batch = _padded([tokens[i] for i in rows], source.pad_id)
            for index, output in enumerate(run(*batch)):
                _put(found, index, rows, output)
            advance(len(rows))
    return found


def inputs(examples: Sequence[Example]) -> tuple[list[Text], list[Target]]:
    """Return the texts and the labels that `recorded` takes."""
    return [Text(e.text_a, e.text_b) for e in examples], [e.label for e in examples]


def _empty(source: Source, tokens: Sequence[Tokens], gold: Gold | None) -> Recorded:
    """Return a recording of the right shapes that holds zeros, and what counts."""
    traits, num_tokens = source.traits, _lengths(tokens)
    shape, counted = (len(traits.exits), len(tokens)), None
    inner: tuple[int, ...] = (len(traits.labels),)
    if traits.task == "token":
        counted = np.zeros((len(tokens), num_tokens.max(initial=0)), np.bool_)
        for row, each in enumerate(tokens):
            counted[row, : num_tokens[row]] = each.counted
        inner = (counted.shape[1], *inner)
    return Recorded(
        traits,
        source.temperatures,
        np.zeros((*shape, *inner), np.float32),
        counted,
        np.zeros(shape, np.float32) if traits.learned else None,
        num_tokens=num_tokens,
        gold=gold,
    )


def _gold(
    source: Source, texts: Sequence[Text], labels: Sequence[Target], tokens: Sequence[Tokens]
) -> Gold:
    """Return the correct answers, see `Recorded`."""
    if source.traits.task != "token":
        return np.array(labels)
    tagged = [
        (text.text, label if isinstance(label, list) else [])
        for text, label in zip(texts, labels, strict=True)
    ]
    gold = np.full((len(tokens), _lengths(tokens).max(initial=0)), IGNORED, np.int64)
    aligned = tag_tokens(source.tokenizer_path, tagged, source.max_tokens)
    for row, tags in enumerate(aligned):
        gold[row, : len(tags)] = tags
    return gold


def _put(found: Recorded, index: int, rows: NDArray[np.intp], output: StepOutput) -> None:
    if found.counted is None:
        found.logits[index, rows] = output.logits
    else:
        found.logits[index, rows, : output.logits.shape[1]] = output.logits
    if found.uncertainty is not None and output.uncertainty is not None:
        found.uncertainty[index, rows] = output.uncertainty


def _lengths(tokens: Sequence[Tokens]) -> NDArray[np.intp]:
    return np.array([len(each.input_ids) for each in tokens], np.intp)


def _by_length(num_tokens: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    order = np.argsort(num_tokens, kind="stable")
    for start in range(0, len(order), ROWS_PER_BATCH):
        yield order[start : start + ROWS_PER_BATCH]


def _padded(rows: Sequence[Tokens], pad_id: int) -> tuple[Ids, Ids, Ids]:
    """Return ids, mask and types, each (rows, tokens)."""
    shape = len(rows), max(len(row.input_ids) for row in rows)
    ids, mask, types = np.full(shape, pad_id), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for place, row in enumerate(rows):
        length = len(row.input_ids)
        ids[place, :length], types[place, :length] = row.input_ids, row.token_type_ids
        mask[place, :length] = 1
    return ids, mask, types
