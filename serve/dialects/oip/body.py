"""Bodies of inference requests: JSON, and bytes of tensors behind it."""

import asyncio
from typing import Final

from pydantic import ValidationError

from serve.api.body import (
    CURLS_FORM,
    Body,
    check_query,
    give_way,
    media_type,
    not_json,
    read_bytes,
)
from serve.api.json_decoding import MAX_ELEMENTS, parse_json
from serve.api.request import Headers, Request
from serve.dialects.oip.compression import unpack
from serve.dialects.oip.schemas import InferRequest
from serve.dialects.oip.signature import BYTES, TEXT
from serve.errors import InvalidTensor, MalformedBody
from serve.validation import explain

# In requests and answers: the length of the JSON, where bytes of tensors follow it.
HEADER_LENGTH: Final = "Inference-Header-Content-Length"

# Elements of all inputs, of which ids have three, and some to spare.
_MAX_LISTED: Final = 4 * MAX_ELEMENTS
# Browsers send these unasked to any site, and other types, or that header, only with leave. No type
# at all they send unasked too, and so do the clients; `Origins` tells the two apart.
_OF_FORMS: Final = (CURLS_FORM, "multipart/form-data", "text/plain")


async def read_infer(request: Request, schema: type[Body]) -> Body:
    """Return the body of an inference request, or of another one of the same protocol.

    The clients compress bodies, name no type or various ones, and send no body where all fields of
    a request may be left out.

    Raises:
        OfframpError: the body is refused.
    """
    check_query(request)
    body = await _read_unpacked(request)
    # Triton's client sends the header with requests that hold no tensors too, where its caller
    # gives the same headers to all calls: it changes them.
    length = _header_length(request.headers, len(body)) if schema is InferRequest else None
    if length is None:
        if media_type(request) in _OF_FORMS:
            raise not_json()
        return await _validated(body, schema, f"bytes of tensors behind it need {HEADER_LENGTH}")
    if not length:
        return schema.model_validate(_of_text(body))
    read = await _validated(body[:length], schema, f"its length is {length} by {HEADER_LENGTH}")
    if isinstance(read, InferRequest):
        read.keep_binary(body[length:])
    return read


async def _read_unpacked(request: Request) -> bytes:
    body, encoding, limit = (
        await read_bytes(request),
        request.headers.get("content-encoding"),
        request.body,
    )
    if encoding is None or limit is None:
        return body
    sizes = list[int]()
    try:
        return await asyncio.to_thread(unpack, body, encoding, limit.max_bytes, sizes.append)
    finally:  # refused bodies are paid for by what was unpacked of them, too
        for num_bytes in sizes:
            request.client.take_body(num_bytes)
            limit.hold_unpacked(num_bytes)


def _header_length(headers: Headers, num_bytes: int) -> int | None:
    text = headers.get(HEADER_LENGTH.lower())
    if text is None:
        return None
    # Python refuses to read thousands of digits.
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise MalformedBody(f"{HEADER_LENGTH}: must be the length of the JSON in bytes")
    if int(digits) > num_bytes:
        raise MalformedBody(f"{HEADER_LENGTH}: is {digits}, but the body has {num_bytes} bytes")
    return int(digits)


async def _validated(body: bytes, model: type[Body], hint: str) -> Body:
    if not body.strip() and issubclass(model, InferRequest):
        raise MalformedBody("the body is empty; send a JSON object")
    try:
        document = parse_json(body, _MAX_LISTED) if body else {}
    except MalformedBody as error:
        raise MalformedBody(f"{error} ({hint})") from None
    await give_way(len(body))
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise InvalidTensor(explain(error)) from None


def _of_text(body: bytes) -> dict[str, object]:
    """Return the request that a body without JSON stands for: it is one text."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidTensor(f"{TEXT}: is not UTF-8 at byte {error.start}") from None
    return {
        "inputs": [{"name": TEXT, "datatype": BYTES, "shape": [1], "data": [text]}],
        "parameters": {"binary_data_output": True},
    }
