"""From the JSON of an inference request, and the bytes behind it, to tensors and wanted outputs."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from serve.api.classification import check_inputs
from serve.classifier.classifier import Classifier
from serve.dialects.oip.outputs import Wanted, check_wanted
from serve.dialects.oip.schemas import InferInput, InferOutput, InferRequest
from serve.dialects.oip.signature import INPUTS, default_outputs
from serve.dialects.oip.tensors import Tensor, check_shape, quoted, read_tensor
from serve.errors import InvalidTensor


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


def wanted_outputs(body: InferRequest, classifier: Classifier) -> list[Wanted]:
    """Return the outputs that a request names, or the default ones, in the order of the answer.

    Raises:
        InvalidTensor: the model has no such output, or a parameter is wrong.
    """
    every = _flag(body.parameters or {}, "binary_data_output", "parameters", False)
    if not body.outputs:
        return [Wanted(name, binary=every) for name in default_outputs(classifier)]
    wanted = [
        Wanted(o.name, _class_count(o), _flag(o.parameters or {}, "binary_data", o.name, every))
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
