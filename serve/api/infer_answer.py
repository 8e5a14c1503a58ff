"""Answers to inference requests: JSON, and bytes of tensors behind it."""

import asyncio
from json import JSONEncoder
from typing import Any, Final, NamedTuple

import numpy as np
from starlette.responses import Response

from serve.api.classification import MAX_INLINE_LOGITS, Classification
from serve.api.compression import choose_encoding, pack
from serve.api.dial import exit_headers
from serve.api.infer_body import HEADER_LENGTH
from serve.api.infer_request import AskedOutputs
from serve.api.json_encoding import logits_as_lists, short
from serve.api.oip.outputs import output_tensors
from serve.api.oip.parameters import answer_parameters
from serve.api.oip.signature import VERSION
from serve.api.oip.tensors import Tensor, to_bytes
from serve.api.response_builder import num_logits

_encode: Final = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class _Content(NamedTuple):
    """A body and the headers that tell how to read it."""

    body: bytes
    headers: dict[str, str]


async def infer_response(
    answered: Classification, asked: AskedOutputs, request_id: str | None, accepted: str
) -> Response:
    """Return the answer; long ones are made on a thread.

    Args:
        answered: the model's answers.
        asked: the outputs that it shows.
        request_id: of the client.
        accepted: the request's Accept-Encoding.
    """
    arguments = answered, asked, request_id, accepted
    if num_logits(answered.classified) <= MAX_INLINE_LOGITS:
        content = _make(*arguments)
    else:
        content = await asyncio.to_thread(_make, *arguments)
    headers = exit_headers(answered.classifier, answered.classified)
    return Response(content.body, headers={**content.headers, **headers})


def _make(
    answered: Classification, asked: AskedOutputs, request_id: str | None, accepted: str
) -> _Content:
    described, behind = [], []
    for tensor, binary in zip(output_tensors(answered, asked.wanted), asked.binary, strict=True):
        raw = to_bytes(tensor) if binary else None
        described.append(_describe(tensor, raw))
        if raw is not None:
            behind.append(raw)
    head: dict[str, Any] = {"model_name": answered.classifier.name, "model_version": VERSION}
    if request_id is not None:
        head["id"] = request_id
    head["parameters"] = answer_parameters(answered)
    json = f'{_encode(head)[:-1]},"outputs":[{",".join(described)}]}}'.encode()
    body = b"".join((json, *behind))
    headers = {"content-type": "application/json"}
    if behind:
        headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(json))}
    return _compressed(body, headers, accepted)


def _compressed(body: bytes, headers: dict[str, str], accepted: str) -> _Content:
    encoding = choose_encoding(accepted, len(body))
    if encoding == "identity":
        return _Content(body, headers)
    return _Content(
        pack(body, encoding), {**headers, "content-encoding": encoding, "vary": "Accept-Encoding"}
    )


def _describe(tensor: Tensor, raw: bytes | None) -> str:
    """Return an output's JSON: with its elements, or the number of bytes that hold them."""
    shape = ",".join(map(str, tensor.shape))
    head = f'{{"name":"{tensor.name}","datatype":"{tensor.datatype}","shape":[{shape}]'
    if raw is not None:
        return f'{head},"parameters":{{"binary_data_size":{len(raw)}}}}}'
    # Row by row: one call of the encoder holds the interpreter's lock all the time.
    rows = [_encode(_row(tensor, i))[1:-1] for i in range(tensor.shape[0])]
    return f'{head},"data":[{",".join(rows)}]}}'


def _row(tensor: Tensor, i: int) -> list[Any]:
    """Return the elements of a row as `/v1/classify` writes them."""
    if isinstance(tensor.values, list):
        width = tensor.shape[1]
        return tensor.values[i * width : (i + 1) * width]
    row = tensor.values[i].ravel()
    if tensor.name == "logits":
        return logits_as_lists(row)
    if row.dtype == np.float32:
        return [short(value) for value in row]
    elements: list[Any] = row.tolist()
    return elements
