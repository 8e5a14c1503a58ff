"""From the tensors of a request to the inputs of our own form."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve.bundle.manifest import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from serve.dialects.oip.signature import TEXT, TEXT_PAIR
from serve.dialects.oip.tensors import Tensor
from serve.errors import InvalidTensor


def inputs_of(tensors: Sequence[Tensor]) -> list[Any]:
    """Return `inputs` of a `ClassifyRequest`, one per row.

    Raises:
        InvalidTensor: the tensors do not go together, or a mask hides more than padding.
    """
    given = {tensor.name: tensor for tensor in tensors}
    if len(given) < len(tensors):
        raise InvalidTensor("inputs: an input is there twice")
    main = TEXT if TEXT in given else INPUT_IDS
    if main not in given:
        raise InvalidTensor(f"inputs: give {TEXT} or {INPUT_IDS}")
    beside = {TEXT_PAIR} if main == TEXT else {ATTENTION_MASK, TOKEN_TYPE_IDS}
    for name, tensor in given.items():
        if name != main and name not in beside:
            raise InvalidTensor(f"{name}: does not go with {main}")
        if tensor.shape != given[main].shape:
            raise InvalidTensor(
                f"{name}: has the shape {list(tensor.shape)}, and {main} "
                f"{list(given[main].shape)}; they must be equal"
            )
    return _texts(given) if main == TEXT else _ids(given)


def _texts(given: dict[str, Tensor]) -> list[Any]:
    texts = list(given[TEXT].values)
    if TEXT_PAIR not in given:
        return texts
    pairs = zip(texts, given[TEXT_PAIR].values, strict=True)
    return [{"text": text, "text_pair": pair} for text, pair in pairs]


def _ids(given: dict[str, Tensor]) -> list[Any]:
    ids = _rows(given[INPUT_IDS])
    lengths = [ids.shape[1]] * len(ids)
    if ATTENTION_MASK in given:
        lengths = _lengths(_rows(given[ATTENTION_MASK]))
    inputs = [{INPUT_IDS: row[:n].tolist()} for row, n in zip(ids, lengths, strict=True)]
    if TOKEN_TYPE_IDS in given:
        types = _rows(given[TOKEN_TYPE_IDS])
        for one, row, n in zip(inputs, types, lengths, strict=True):
            one[TOKEN_TYPE_IDS] = row[:n].tolist()
    return inputs


def _rows(tensor: Tensor) -> NDArray[np.int64]:  # (rows, tokens)
    return np.asarray(tensor.values, np.int64)


def _lengths(mask: NDArray[np.int64]) -> list[int]:
    """Return the tokens of each row that are not padding."""
    lengths = (mask == 1).sum(axis=1)
    right_padded = (np.arange(mask.shape[1]) < lengths[:, None]).astype(np.int64)
    wrong = np.flatnonzero((mask != right_padded).any(axis=1))
    if len(wrong):
        raise InvalidTensor(
            f"{ATTENTION_MASK}[{wrong[0]}]: must be ones for tokens and then zeros for padding; "
            "the model reads all tokens between"
        )
    return [int(length) for length in lengths]
