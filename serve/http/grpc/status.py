"""Our errors as gRPC knows them: a code, a message, and trailing metadata."""

from typing import Final

import grpc

from serve.dialects.oip.dialect import OIP
from serve.errors import MalformedBody, OfframpError, Overloaded

# The codes for HTTP statuses; other statuses below 500 are INVALID_ARGUMENT, and INTERNAL above.
_CODES: Final = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}

# Our own stable code, as in the field `error.code` of `/v1/classify`.
ERROR_CODE: Final = "x-offramp-error"


# gRPC sends three bytes for each byte beyond ASCII, and clients refuse 8 KiB of metadata.
_MAX_MESSAGE_BYTES: Final = 1500


class MalformedMessage(MalformedBody):
    """The bytes are not the protobuf message of the method."""


def status_of(error: OfframpError) -> tuple[grpc.StatusCode, str]:
    """Return code and message of an error."""
    other = grpc.StatusCode.INTERNAL if error.status >= 500 else grpc.StatusCode.INVALID_ARGUMENT
    message = OIP.message(error).encode()[:_MAX_MESSAGE_BYTES].decode(errors="ignore")
    return _CODES.get(error.status, other), message


def error_metadata(error: OfframpError) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata of an error.

    Clients of gRPC that were told to retry heed `grpc-retry-pushback-ms`.
    """
    named = ((ERROR_CODE, error.code),)
    if not isinstance(error, Overloaded):
        return named
    wait_s = error.retry_after_s
    return (
        *named,
        ("retry-after", str(wait_s)),
        ("grpc-retry-pushback-ms", str(wait_s * 1000)),
    )
