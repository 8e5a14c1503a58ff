"""What every exit of a bundle says of some texts, through the code that serves them."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.bundle.loader import Bundle
from serve.engine.runner import Ids, StepOutput
from serve.engine.warm_up import steps
from serve.rules.replay import Recording
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.inputs import InputReader, pieces_of
from serve.tokenization.length_bounds import Text
from serve.tokenization.tokenizer import Tokens

ROWS_PER_BATCH = 32


class BundleRecording(NamedTuple):
    """The outputs of all active exits.

    Attributes:
        logits: (exits, rows, labels) float32; of taggers (exits, rows, tokens, labels), where
            those of padding mean nothing.
        num_tokens: (rows,) tokens of each text, special ones included.
        counted: (rows, tokens) of taggers: which tokens exit rules look at. None for other tasks.
        uncertainty: (exits, rows) the error that each head predicts for itself; None without.
    """

    logits: Recording
    num_tokens: NDArray[np.intp]
    counted: NDArray[np.bool_] | None = None
    uncertainty: NDArray[np.float32] | None = None

    def of(self, rows: NDArray[np.intp]) -> "BundleRecording":
        """Return the outputs of some of the texts."""
        return BundleRecording(
            self.logits[:, rows],
            self.num_tokens[rows],
            None if self.counted is None else self.counted[rows],
            None if self.uncertainty is None else self.uncertainty[:, rows],
        )


def read_texts(bundle: Bundle, texts: Sequence[Text]) -> list[Tokens]:
    """Return the texts' tokens as the server reads them; long texts are cut.

    Raises:
        InvalidRequest: a text has no tokens, or is a pair that the model does not take.
    """
    reader = InputReader(bundle.tokenizer_path, bundle.manifest)
    tokens: list[Tokens] = []
    for piece in pieces_of(texts):
        tokens += reader.read(piece, truncate=True, first=len(tokens))
    return tokens


def record(
    bundle: Bundle,
    placement: Placement,
    tokens: Sequence[Tokens],
    advance: Callable[[int], None] = lambda rows: None,
) -> BundleRecording:
    """Run every row through all active exits, in batches of similar length.

    Args:
        bundle: with the exits that are to be recorded, see `Bundle.presenting`.
        placement: the device, and the variant to record.
        tokens: the rows.
        advance: called after each batch with its number of rows.
    """
    runner = build_runner(bundle, placement, available_threads())
    empty = _empty(bundle, tokens)
    for rows in _by_length(empty.num_tokens):
        batch = _padded([tokens[i] for i in rows], bundle.manifest.pad_id)
        for index, output in enumerate(steps(runner, *batch)):
            _put(empty, index, rows, output)
        advance(len(rows))
    return empty


def _empty(bundle: Bundle, tokens: Sequence[Tokens]) -> BundleRecording:
    """Return a recording of the right shapes that holds zeros, and what counts."""
    manifest = bundle.manifest
    num_tokens = np.array([len(each.input_ids) for each in tokens], np.intp)
    rows_and_exits = len(manifest.exits), len(tokens)
    uncertainty = np.zeros(rows_and_exits, np.float32) if manifest.learned else None
    if manifest.task != "token":
        logits = np.zeros((*rows_and_exits, len(manifest.labels)), np.float32)
        return BundleRecording(logits, num_tokens, None, uncertainty)
    width = num_tokens.max(initial=0)
    counted = np.zeros((len(tokens), width), np.bool_)
    for row, each in enumerate(tokens):
        counted[row, : num_tokens[row]] = each.counted
    logits = np.zeros((*rows_and_exits, width, len(manifest.labels)), np.float32)
    return BundleRecording(logits, num_tokens, counted, uncertainty)


def _put(
    recording: BundleRecording, index: int, rows: NDArray[np.intp], output: StepOutput
) -> None:
    if recording.counted is None:
        recording.logits[index, rows] = output.logits
    else:
        recording.logits[index, rows, : output.logits.shape[1]] = output.logits
    if recording.uncertainty is not None and output.uncertainty is not None:
        recording.uncertainty[index, rows] = output.uncertainty


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
