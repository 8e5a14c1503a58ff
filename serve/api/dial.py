"""The dial between speed and certainty: in headers, and in other dialects' fields."""

from typing import Any, Final

from pydantic import Field

from serve.api.json_decoding import parse_json
from serve.api.request import Headers
from serve.errors import InvalidRequest, OfframpError
from serve.validation import RequestModel

EXIT: Final = "x-offramp-exit"
TIMEOUT_MS: Final = "x-offramp-timeout-ms"
PRIORITY: Final = "x-offramp-priority"
DEGRADE: Final = "x-offramp-degrade"

# The fields of `ClassifyRequest` that each header fills.
_HEADERS: Final = {
    "exit": EXIT,
    "timeout_ms": TIMEOUT_MS,
    "priority": PRIORITY,
    "degrade": DEGRADE,
}

DIAL: Final = tuple(_HEADERS.values())


class Dial(RequestModel):
    """The dial in the requests of other dialects."""

    exit: Any = Field(default=None, description="As in /v1/classify: target, rule or profile.")
    timeout_ms: float | None = Field(default=None, description="As in /v1/classify.")
    priority: str | None = Field(default=None, description="As in /v1/classify.")


def dial_fields(headers: Headers) -> dict[str, Any]:
    """Return the fields of a `ClassifyRequest` that the headers ask for.

    Raises:
        InvalidRequest: a header cannot be read.
    """
    found: dict[str, Any] = {}
    if not has_dial(headers):
        return found
    for name in DIAL:
        if name in headers.repeated:
            raise InvalidRequest(f"{name}: comes more than once; send one")
    if (text := headers.get(EXIT)) is not None:
        found["exit"] = read_exit(text, EXIT)
    if (text := headers.get(TIMEOUT_MS)) is not None:
        found["timeout_ms"] = _number(text, TIMEOUT_MS)
    if (text := headers.get(PRIORITY)) is not None:
        found["priority"] = text.strip().lower()
    if (text := headers.get(DEGRADE)) is not None:
        found["degrade"] = read_degrade(text, DEGRADE)
    return found


def read_exit(text: str, place: str) -> Any:
    """Return an exit choice that came as text: a profile's name, or a JSON object.

    Raises:
        InvalidRequest: it begins like an object and is none; the message names the place.
    """
    text = text.strip()
    if not text.startswith("{"):
        return text
    try:
        return parse_json(text.encode())
    except OfframpError:
        raise InvalidRequest(
            f'{place}: must be the name of a profile, or JSON such as {{"target": '
            '{"max_disagreement": 0.01}}'
        ) from None


def read_degrade(text: str, place: str) -> Any:
    """Return how far a request may move that came as text: `false`, or a JSON object.

    Raises:
        InvalidRequest: it is neither; the message names the place.
    """
    try:
        return parse_json(text.strip().encode())
    except OfframpError:
        raise InvalidRequest(
            f'{place}: must be false, or JSON such as {{"max_disagreement": 0.03}}'
        ) from None


def merge_dial(fields: dict[str, Any], headers: Headers) -> dict[str, Any]:
    """Return the fields of a request with those of its headers.

    Raises:
        InvalidRequest: a header cannot be read, or says what the body says already.
    """
    asked = dial_fields(headers)
    for name in asked.keys() & {name for name, value in fields.items() if value is not None}:
        raise InvalidRequest(f"{name}: is in the body and in the header {_HEADERS[name]}; send one")
    return {**fields, **asked}


def has_dial(headers: Headers) -> bool:
    """Tell whether any header asks for something."""
    return not headers.keys().isdisjoint(DIAL)


def _number(text: str, place: str) -> float:
    try:
        return float(text.replace("_", "x"))  # Python takes 1_0 for 10
    except ValueError:
        raise InvalidRequest(f"{place}: must be a number, not {text[:40]!r}") from None
