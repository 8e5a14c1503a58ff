"""Bodies of inference requests: JSON, and bytes of tensors behind it."""

import asyncio
import zlib
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
from serve.dialects.oip.schemas import BYTES, TEXT, InferRequest
from serve.errors import InvalidTensor, MalformedBody, UnsupportedMediaType
from serve.validation import explain

# This header of requests and answers has the length of the JSON that bytes of tensors follow.
HEADER_LENGTH: Final = "Inference-Header-Content-Length"

# Elements of all inputs, of which ids have three, and some to spare.
_MAX_LISTED: Final = 4 * MAX_ELEMENTS
# Browsers send bodies of these types to any site unasked; other types, or that header, they send
# only with leave. Browsers and clients send bodies without a type; `Access` tells the two apart.
_OF_FORMS: Final = (CURLS_FORM, "multipart/form-data", "text/plain")

# Window sizes by which zlib tells its own format, which HTTP calls deflate, from gzip's.
_WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}
_IDENTITY: Final = "identity"

# One byte stands for so many at most.
_MOST_RATIO: Final = 1032

# Shorter answers fit a packet as they are.
_MIN_BYTES: Final = 1024
# More effort gains a few percent in size and takes three times as long.
_LEVEL = 1


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
    body, limit = await read_bytes(request), request.body
    encoding = request.headers.get("content-encoding", _IDENTITY).strip().lower()
    if encoding == _IDENTITY or limit is None:
        return body
    if encoding not in _WINDOW_BITS:
        raise UnsupportedMediaType(
            "send the body as it is, or with the Content-Encoding gzip or deflate"
        )
    try:
        unpacked = await asyncio.to_thread(_unpack, body, encoding, limit.max_bytes)
    except MalformedBody:  # what may have been unpacked of it is paid for, too
        request.client.take_body(min(len(body) * _MOST_RATIO, limit.max_bytes))
        raise
    request.client.take_body(len(unpacked))
    limit.hold_unpacked(len(unpacked))
    return unpacked


def _unpack(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return a body without its Content-Encoding; at most one more than `max_bytes` are unpacked.

    Raises:
        MalformedBody: the body is not what the encoding says.
    """
    unpacker = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        unpacked = unpacker.decompress(body, max_bytes + 1)
    except zlib.error:
        raise MalformedBody(f"the body is not {encoding}, as its Content-Encoding says") from None
    if len(unpacked) <= max_bytes and (not unpacker.eof or unpacker.unused_data):
        found = "bytes after its end" if unpacker.eof else "no end"
        raise MalformedBody(f"the body has {found} as {encoding}")
    return unpacked


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


def packed(body: bytes, accepted: str) -> tuple[bytes, dict[str, str]]:
    """Return an answer's body, compressed if that pays and the client takes it, and its headers.

    Args:
        body: the answer's body.
        accepted: the request's Accept-Encoding.
    """
    names = [part.strip().lower() for part in accepted.split(",")]
    encoding = next((name for name in names if name in _WINDOW_BITS), None)
    if encoding is None or len(body) < _MIN_BYTES:
        return body, {}
    packer = zlib.compressobj(_LEVEL, wbits=_WINDOW_BITS[encoding])
    headers = {"content-encoding": encoding, "vary": "Accept-Encoding"}
    return packer.compress(body) + packer.flush(), headers
