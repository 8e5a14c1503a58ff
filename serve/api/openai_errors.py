"""Errors as OpenAI's clients read them."""

from http import HTTPStatus
from typing import Any, Final

from serve.api.schemas import ResponseModel
from serve.errors import InvalidRequest, OfframpError


class OpenAIProblem(ResponseModel):
    """The error that a request got."""

    message: str
    type: str
    param: None
    code: int


class OpenAIError(ResponseModel):
    """An error as OpenAI's clients read it."""

    error: OpenAIProblem


_TYPES: Final = {
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    429: "RateLimitError",
}
# OpenAI's clients know no 422.
OPENAI_STATUSES: Final = {InvalidRequest.status: HTTPStatus.BAD_REQUEST.value}


def openai_error(error: OfframpError, message: str) -> Any:
    """Return an error as OpenAI's clients read it."""
    status = OPENAI_STATUSES.get(error.status, error.status)
    kind = "InternalServerError" if status >= 500 else "BadRequestError"
    return {
        "error": {
            "message": message,
            "type": _TYPES.get(status, kind),
            "param": None,
            "code": status,
        }
    }
