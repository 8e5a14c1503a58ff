"""Answers to inference requests: JSON, and bytes of tensors behind it."""

from typing import Any

import numpy as np

from serve.api.classification import Classification
from serve.api.exit_report import exit_headers
from serve.api.json_encoding import rounded, short, to_json
from serve.api.response import JSON, Response
from serve.dialects.oip.body import HEADER_LENGTH
from serve.dialects.oip.compression import IDENTITY, choose_encoding, pack
from serve.dialects.oip.outputs import Wanted, output_tensors
from serve.dialects.oip.parameters import answer_parameters
from serve.dialects.oip.signature import VERSION
from serve.dialects.oip.tensors import Tensor, to_bytes


def write(
    wanted: list[Wanted], request_id: str | None, accepted: str, answered: Classification
) -> Response:
    """Return the answer; `accepted` is the request's Accept-Encoding."""
    described, behind = [], []
    for tensor, each in zip(output_tensors(answered, wanted), wanted, strict=True):
        raw = to_bytes(tensor) if each.binary else None
        described.append(_describe(tensor, raw))
        if raw is not None:
            behind.append(raw)
    head: dict[str, Any] = {"model_name": answered.classifier.name, "model_version": VERSION}
    if request_id is not None:
        head["id"] = request_id
    head["parameters"] = answer_parameters(answered)
    json = b'%b,"outputs":[%b]}' % (to_json(head)[:-1], b",".join(described))
    headers, media_type = exit_headers(answered), JSON
    if behind:
        headers[HEADER_LENGTH], media_type = str(len(json)), "application/octet-stream"
    body = b"".join((json, *behind))
    encoding = choose_encoding(accepted, len(body))
    if encoding == IDENTITY:
        return Response(body, headers, media_type)
    headers |= {"content-encoding": encoding, "vary": "Accept-Encoding"}
    return Response(pack(body, encoding), headers, media_type)


def _describe(tensor: Tensor, raw: bytes | None) -> bytes:
    """Return an output's JSON: with its elements, or the number of bytes that hold them."""
    head: dict[str, Any] = {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": list(tensor.shape),
    }
    if raw is not None:
        return to_json({**head, "parameters": {"binary_data_size": len(raw)}})
    # Row by row: one call of the encoder holds the interpreter's lock all the time.
    rows = [to_json(_row(tensor, i))[1:-1] for i in range(tensor.shape[0])]
    return b'%b,"data":[%b]}' % (to_json(head)[:-1], b",".join(rows))


def _row(tensor: Tensor, i: int) -> Any:
    """Return the elements of a row as `/v1/classify` writes them."""
    if isinstance(tensor.values, list):
        width = tensor.shape[1]
        return tensor.values[i * width : (i + 1) * width]
    row = tensor.values[i].ravel()
    if tensor.name == "logits":
        return rounded(row)
    if row.dtype == np.float32:
        return [short(value) for value in row]
    return row
