"""ModelInfer: classifies the rows of tensors."""

import asyncio
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from serve.api.body import give_way
from serve.api.choices import model_for
from serve.api.classify import MAX_INLINE_LOGITS, check_inputs, classify, num_logits, read_fields
from serve.api.context import AppContext
from serve.classifier.classification import Classification
from serve.classifier.classify_request import ClassifyRequest
from serve.dialects.oip.infer_request import NAMES, check_known, class_count, dial_of, inputs_of
from serve.dialects.oip.model_routes import check_version
from serve.dialects.oip.output_tensors import (
    WantedOutput,
    answer_parameters,
    check_wanted,
    output_tensors,
)
from serve.dialects.oip.schemas import VERSION, default_outputs
from serve.dialects.oip.tensors import Tensor, quoted, read_tensor, to_bytes
from serve.errors import InvalidTensor
from serve.http.grpc.call import Call
from serve.http.grpc.messages import message_class

_Response: Final = message_class("inference.ModelInferResponse")

# The field of `InferParameter` for each type of a parameter of answers.
_KINDS: Final = {bool: "bool_param", int: "int64_param", str: "string_param"}
# The field of `InferTensorContents` for each datatype that our tensors have.
_FIELDS: Final = {
    "BYTES": "bytes_contents",
    "INT64": "int64_contents",
    "INT32": "int_contents",
    "FP32": "fp32_contents",
}
# KServe's client says of raw contents what HTTP needs to find them.
_SIZE: Final = "binary_data_size"
# Rows leave with what they have this long before the deadline of the call: an answer that is only
# made then would come too late. The share is for deadlines of a few milliseconds.
_RESERVE_MS: Final = 20.0
_RESERVE_SHARE: Final = 0.2


async def infer(context: AppContext, call: Call, message: Any) -> Any:
    """Return the answer to a `ModelInferRequest`.

    Raises:
        OfframpError: the request, the policy, the queue or the model refuses it.
    """
    classifier = model_for(context.catalog, call.request.client, message.model_name)
    check_version(classifier, message.model_version or VERSION)
    wanted = _wanted(message.outputs) or [
        WantedOutput(name) for name in default_outputs(classifier)
    ]
    check_wanted(classifier, wanted)
    tensors = _tensors(message, context.limits.max_inputs)
    await give_way(call.request.num_bytes)
    inputs = inputs_of(tensors)
    await give_way(call.request.num_bytes)
    fields = {
        "model": message.model_name or None,  # an alias may be moved meanwhile
        "inputs": inputs,
        **dial_of(_values(message.parameters)),
    }
    body = _in_time(read_fields(fields, call.request.headers, NAMES), call.rpc.time_remaining())
    answered = await classify(context, call.request, body)
    as_bytes = bool(message.raw_input_contents)
    if num_logits(answered) <= MAX_INLINE_LOGITS:
        return _answer(answered, wanted, message.id, as_bytes)
    return await asyncio.to_thread(_answer, answered, wanted, message.id, as_bytes)


def _in_time(body: ClassifyRequest, remaining_s: float | None) -> ClassifyRequest:
    """Return a request that is answered before the deadline of its call."""
    if remaining_s is None:
        return body
    remaining_ms = max(remaining_s, 0.0) * 1000
    left_ms = remaining_ms - min(_RESERVE_MS, remaining_ms * _RESERVE_SHARE)
    if body.timeout_ms is not None and body.timeout_ms <= left_ms:
        return body
    return body.model_copy(update={"timeout_ms": left_ms})


def _tensors(message: Any, max_inputs: int) -> list[Tensor]:
    for given in message.inputs:
        if given.shape:  # before its elements are looked at
            check_inputs(given.shape[0], max_inputs)
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise InvalidTensor(
            f"raw_input_contents: has {len(raw)} elements for {len(message.inputs)} inputs; it "
            "must have one for each"
        )
    return [
        _tensor(given, raw[place] if raw else None) for place, given in enumerate(message.inputs)
    ]


def _tensor(given: Any, raw: bytes | None) -> Tensor:
    parameters = _values(given.parameters)
    known = ("content_type",) if raw is None else ("content_type", _SIZE)
    check_known(parameters, known, given.name)
    if raw is not None and parameters.get(_SIZE, len(raw)) != len(raw):
        raise InvalidTensor(
            f"{quoted(given.name)}: {_SIZE} is {str(parameters[_SIZE])[:64]}, and its bytes in "
            f"raw_input_contents are {len(raw)}"
        )
    if parameters.get("content_type", "str") != "str":  # MLServer's clients say so of texts
        raise InvalidTensor(f"{quoted(given.name)}: the content_type must be str")
    if raw is None:
        name = _FIELDS.get(given.datatype, "bytes_contents")
        if any(field.name != name for field, _ in given.contents.ListFields()):
            raise InvalidTensor(f"{quoted(given.name)}: its elements must be in {name} alone")
        return read_tensor(given.name, given.datatype, given.shape, _data(given, name))
    if given.HasField("contents"):
        raise InvalidTensor(f"{quoted(given.name)}: is in contents and in raw_input_contents")
    return read_tensor(given.name, given.datatype, given.shape, raw)


def _data(given: Any, name: str) -> bytes | list[Any]:
    """Return the typed contents of a tensor; integers that fit its shape as bytes, not objects."""
    contents = getattr(given.contents, name)
    if name == "int64_contents" and len(contents) == math.prod(given.shape):
        return np.fromiter(contents, "<i8", len(contents)).tobytes()
    return list(contents)


def _wanted(outputs: Iterable[Any]) -> list[WantedOutput]:
    found = []
    for each in outputs:
        parameters = _values(each.parameters)
        check_known(parameters, ("classification",), each.name)
        found.append(WantedOutput(each.name, class_count(parameters, each.name)))
    return found


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters without protobuf around them; one without a value is None."""
    found = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        found[name] = getattr(parameter, kind) if kind else None
    return found


def _answer(
    answered: Classification, wanted: list[WantedOutput], request_id: str, as_bytes: bool
) -> Any:
    """Return the answer with the tensors as bytes, or typed as the request had them."""
    response = _Response(model_name=answered.classifier.name, model_version=VERSION, id=request_id)
    for name, value in answer_parameters(answered).items():
        setattr(response.parameters[name], _KINDS[type(value)], value)
    for tensor in output_tensors(answered, wanted):
        output = response.outputs.add(
            name=tensor.name, datatype=tensor.datatype, shape=tensor.shape
        )
        if as_bytes:
            response.raw_output_contents.append(to_bytes(tensor))
        else:
            getattr(output.contents, _FIELDS[tensor.datatype]).extend(_elements(tensor))
    return response


def _elements(tensor: Tensor) -> list[Any]:
    if isinstance(tensor.values, list):
        return [text.encode() for text in tensor.values]
    elements: list[Any] = tensor.values.ravel().tolist()
    return elements
