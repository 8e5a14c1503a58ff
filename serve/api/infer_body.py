"""Bodies of inference requests: JSON, and bytes of tensors behind it."""

from typing import Final

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request

from serve.api.body_limit import BodyLimit
from serve.api.compression import unpack
from serve.api.oip.signature import BYTES, TEXT
from serve.api.request_body import Body, JsonRoute, check_query, parse_json, read_bytes
from serve.api.schemas.oip import InferRequest
from serve.errors import InvalidTensor, MalformedBody, UnsupportedMediaType
from serve.validation import explain

# In requests and answers: the length of the JSON, where bytes of tensors follow it.
HEADER_LENGTH: Final = "Inference-Header-Content-Length"

# Browsers send these unasked to any site, and other types, or that header, only with leave.
_OF_FORMS: Final = (
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "text/plain",
)


class InferRoute(JsonRoute):
    """A route for inference requests, and for others of the same protocol.

    The clients compress bodies, name no type or various ones, and send no body where all fields of
    a request may be left out.
    """

    async def read(self, request: Request, model: type[Body]) -> Body:
        """Return the body.

        Raises:
            OfframpError: the body is refused.
        """
        check_query(request)
        headers = request.headers
        body = await _read_unpacked(request)
        # Triton's client sends the header with requests that hold no tensors too, where its caller
        # gives the same headers to all calls: it changes them.
        length = _header_length(headers, len(body)) if model is InferRequest else None
        if length is None:
            _refuse_forms(headers)
            return _validated(body, model)
        if not length:
            return model.model_validate(_of_text(body))
        read = _validated(body[:length], model)
        if isinstance(read, InferRequest):
            read.keep_binary(body[length:])
        return read


async def _read_unpacked(request: Request) -> bytes:
    body, encoding = await read_bytes(request), request.headers.get("content-encoding")
    if encoding is None:
        return body
    limit: BodyLimit = request.state.body
    unpacked = unpack(body, encoding, limit.max_bytes)
    limit.hold_unpacked(len(unpacked))
    return unpacked


def _header_length(headers: Headers, num_bytes: int) -> int | None:
    text = headers.get(HEADER_LENGTH)
    if text is None:
        return None
    # Python refuses to read thousands of digits.
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise MalformedBody(f"{HEADER_LENGTH}: must be the length of the JSON in bytes")
    if int(digits) > num_bytes:
        raise MalformedBody(f"{HEADER_LENGTH}: is {digits}, but the body has {num_bytes} bytes")
    return int(digits)


def _refuse_forms(headers: Headers) -> None:
    if headers.get("content-type", "").partition(";")[0].strip().lower() in _OF_FORMS:
        raise UnsupportedMediaType("send JSON, with the header Content-Type: application/json")


def _validated(body: bytes, model: type[Body]) -> Body:
    if not body.strip() and issubclass(model, InferRequest):
        raise MalformedBody("the body is empty; send a JSON object")
    try:
        return model.model_validate(parse_json(body) if body.strip() else {})
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
