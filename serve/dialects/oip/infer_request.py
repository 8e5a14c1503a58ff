"""Reads an inference request: its inputs, its dial, and the outputs that it asks for."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from serve.api.classify import check_inputs
from serve.api.dial import read_degrade, read_exit
from serve.bundle.manifest import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from serve.classifier.classifier import Classifier
from serve.dialects.oip.output_tensors import WantedOutput, check_wanted
from serve.dialects.oip.schemas import (
    INPUTS,
    TEXT,
    TEXT_PAIR,
    InferInput,
    InferOutput,
    InferRequest,
    default_outputs,
)
from serve.dialects.oip.tensors import Tensor, check_shape, quoted, read_tensor
from serve.errors import InvalidTensor

# Triton's are numbers: 1 is the highest level, and 0 asks for the default one.
PRIORITIES: Final = {0: None, 1: "high", 2: "normal", 3: "low"}

_KNOWN: Final = ("exit", "timeout", "timeout_ms", "priority", "truncate", "degrade")
# The names of a `ClassifyRequest`'s fields in messages.
NAMES: Final = {
    "exit": "parameters.exit",
    "timeout_ms": "parameters.timeout (in microseconds) or timeout_ms",
    "priority": "parameters.priority",
    "truncate": "parameters.truncate",
    "degrade": "parameters.degrade",
}


def tensors_in(body: InferRequest, max_inputs: int) -> list[Tensor]:
    """Return the inputs of a request, which may have so many rows.

    Raises:
        TooManyInputs: it has more.
        InvalidTensor: one is not as its declaration says, or bytes are missing or left over.
    """
    tensors, place, binary = [], 0, body.binary
    for given in body.inputs:
        spec = INPUTS.get(given.name)
        if spec and spec.datatype == given.datatype:  # before the elements are looked at
            check_shape(spec, given.shape)
            check_inputs(given.shape[0], max_inputs)
        size = _binary_size(given)
        if size is None:
            data: Any = _flat(given)
        else:
            if place + size > len(binary):
                raise InvalidTensor(
                    f"{quoted(given.name)}: binary_data_size is {str(size)[:64]}, but only "
                    f"{len(binary) - place} bytes are left behind the JSON"
                )
            data = binary[place : place + size]
            place += size
        tensors.append(read_tensor(given.name, given.datatype, given.shape, data))
    if place < len(binary):
        raise InvalidTensor(
            f"{len(binary) - place} bytes behind the JSON belong to no input; the "
            "binary_data_size of all inputs must add up to them"
        )
    return tensors


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
    return _texts_of(given) if main == TEXT else _ids(given)


def _texts_of(given: dict[str, Tensor]) -> list[Any]:
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


def dial_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `ClassifyRequest` that parameters ask for.

    Args:
        parameters: `exit` (a profile's name or JSON), `timeout` (microseconds, 0 for none) or
            `timeout_ms`, `priority` (0 to 3, or a word), `truncate`, `degrade` (false or JSON).

    Raises:
        InvalidRequest: a parameter is unknown or cannot be read.
    """
    unknown = [name for name in parameters if name not in _KNOWN]
    if unknown:
        raise InvalidTensor(
            f"parameters: there is no {quoted(unknown[0])}; there are {', '.join(_KNOWN)}"
        )
    fields: dict[str, Any] = {"truncate": parameters.get("truncate")}
    wanted = parameters.get("exit")
    fields["exit"] = read_exit(wanted, NAMES["exit"]) if isinstance(wanted, str) else wanted
    moved = parameters.get("degrade")
    fields["degrade"] = read_degrade(moved, NAMES["degrade"]) if isinstance(moved, str) else moved
    fields["timeout_ms"] = _timeout_ms(parameters)
    fields["priority"] = _priority(parameters.get("priority"))
    return fields


def _timeout_ms(parameters: Mapping[str, Any]) -> Any:
    micros = parameters.get("timeout")
    if micros is None:
        return parameters.get("timeout_ms")
    if "timeout_ms" in parameters:
        raise InvalidTensor("parameters: send timeout, which is in microseconds, or timeout_ms")
    if type(micros) is not int or not 0 <= micros < 2**63:
        raise InvalidTensor("parameters.timeout: must be a whole number of microseconds")
    return micros / 1000 if micros else None


def _priority(given: Any) -> Any:
    if given is None or isinstance(given, str):
        return given
    if type(given) is not int or given not in PRIORITIES:
        raise InvalidTensor(
            "parameters.priority: must be 1 (high), 2 (normal), 3 (low) or 0 for the default, "
            "which is 2"
        )
    return PRIORITIES[given]


def wanted_outputs(body: InferRequest, classifier: Classifier) -> list[WantedOutput]:
    """Return the outputs that a request names, or the default ones, in the order of the answer.

    Raises:
        InvalidTensor: the model has no such output, or a parameter is wrong.
    """
    every = _flag(body.parameters or {}, "binary_data_output", "parameters", False)
    if not body.outputs:
        return [WantedOutput(name, binary=every) for name in default_outputs(classifier)]
    wanted = [
        WantedOutput(
            o.name, _class_count(o), _flag(o.parameters or {}, "binary_data", o.name, every)
        )
        for o in body.outputs
    ]
    check_wanted(classifier, wanted)
    return wanted


def _binary_size(given: InferInput) -> int | None:
    parameters = given.parameters or {}
    # MLServer's clients say so of texts.
    check_known(parameters, ("binary_data_size", "content_type"), given.name)
    if parameters.get("content_type") not in (None, "str"):
        raise InvalidTensor(f"{quoted(given.name)}: the content_type must be str")
    size = parameters.get("binary_data_size")
    if size is None:
        if given.data is None:
            raise InvalidTensor(f"{quoted(given.name)}: give data, or binary_data_size")
        return None
    if type(size) is not int or size < 0:
        raise InvalidTensor(f"{quoted(given.name)}: binary_data_size must be a number of bytes")
    if given.data is not None:
        raise InvalidTensor(f"{quoted(given.name)}: give data or binary_data_size, not both")
    return size


def _flat(given: InferInput) -> list[Any]:
    """Return the elements in one list; they may be nested as the shape is."""
    elements = given.data or []
    for size in given.shape[1:]:
        # A look at the first spares a look at all numbers of a flat list.
        if not (elements and type(elements[0]) is list and set(map(type, elements)) == {list}):
            break
        if any(len(row) != size for row in elements):
            raise InvalidTensor(f"{quoted(given.name)}: the data is not nested as the shape says")
        elements = list(chain.from_iterable(elements))
    return elements


def _class_count(output: InferOutput) -> int:
    parameters = output.parameters or {}
    check_known(parameters, ("binary_data", "classification"), output.name)
    return class_count(parameters, output.name)


def class_count(parameters: Mapping[str, Any], place: str) -> int:
    """Return how many classes an output is asked for; 0 for the output itself.

    Raises:
        InvalidTensor: it is no number of classes.
    """
    count = parameters.get("classification", 0)
    if type(count) is not int or count < 0:
        raise InvalidTensor(f"{quoted(place)}: classification must be a number of classes")
    return count


def _flag(parameters: Mapping[str, Any], name: str, place: str, default: bool) -> bool:
    flag = parameters.get(name, default)
    if not isinstance(flag, bool):
        raise InvalidTensor(f"{place[:64]}: {name} must be true or false")
    return flag


def check_known(parameters: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    """Refuse the parameters of a tensor that are not known.

    Raises:
        InvalidTensor: one of them is not.
    """
    for name in parameters:
        if name.startswith("shared_memory"):
            raise InvalidTensor(f"{quoted(place)}: there is no shared memory here; send the bytes")
        if name not in known:
            raise InvalidTensor(
                f"{quoted(place)}: there is no parameter {quoted(name)}; there are "
                f"{' and '.join(known)}"
            )
