"""The dial between speed and certainty in headers, for clients that have no field for it."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.datastructures import Headers

from serve.api.request_body import parse_json
from serve.classifier.classifier import Classified, Classifier
from serve.errors import InvalidRequest, OfframpError

EXIT: Final = "x-offramp-exit"
TIMEOUT_MS: Final = "x-offramp-timeout-ms"
PRIORITY: Final = "x-offramp-priority"

# The fields of `ClassifyRequest` that each header fills.
_HEADERS: Final = {"exit": EXIT, "timeout_ms": TIMEOUT_MS, "priority": PRIORITY}

DIAL: Final = tuple(_HEADERS.values())
# What `exit_headers` returns.
ANSWERED: Final = (
    "X-Offramp-Exit-Layer",
    "X-Offramp-Exit-Reason",
    "X-Offramp-Policy-Version",
    "X-Offramp-Exit-Rule",
    "X-Offramp-Certificate",
)

# Longer lists of layers and reasons are cut: proxies refuse heads of more than 8 KiB.
_MAX_LISTED: Final = 256


def dial_fields(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a `ClassifyRequest` that the headers ask for.

    Raises:
        InvalidRequest: a header cannot be read.
    """
    found: dict[str, Any] = {}
    if isinstance(headers, Headers) and has_dial(headers):
        for name in DIAL:
            if len(headers.getlist(name)) > 1:
                raise InvalidRequest(f"{name}: comes more than once; send one")
    if (text := headers.get(EXIT)) is not None:
        found["exit"] = read_exit(text, EXIT)
    if (text := headers.get(TIMEOUT_MS)) is not None:
        found["timeout_ms"] = _number(text, TIMEOUT_MS)
    if (text := headers.get(PRIORITY)) is not None:
        found["priority"] = text.strip().lower()
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


def merge_dial(fields: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a request with those of its headers.

    Raises:
        InvalidRequest: a header cannot be read, or says what the body says already.
    """
    asked = dial_fields(headers)
    for name in asked.keys() & {name for name, value in fields.items() if value is not None}:
        raise InvalidRequest(f"{name}: is in the body and in the header {_HEADERS[name]}; send one")
    return {**fields, **asked}


def has_dial(headers: Mapping[str, str]) -> bool:
    """Tell whether any header asks for something."""
    return any(name in headers for name in DIAL)


def exit_headers(classifier: Classifier, classified: Classified) -> dict[str, str]:
    """Return headers that say where and why each input left, in the order of the inputs."""
    exits, answers = classifier.bundle.manifest.exits, classified.answers[:_MAX_LISTED]
    headers = {
        "X-Offramp-Exit-Layer": ",".join(str(exits[a.exit_index].layer) for a in answers),
        "X-Offramp-Exit-Reason": ",".join(a.reason.label for a in answers),
        "X-Offramp-Policy-Version": str(classified.policy_version),
    }
    if classified.resolution:
        texts = classified.resolution.texts
        headers["X-Offramp-Exit-Rule"] = texts["exit_rule"]
        headers["X-Offramp-Certificate"] = texts["certificate"]
    return headers


def _number(text: str, place: str) -> float:
    try:
        return float(text.replace("_", "x"))  # Python takes 1_0 for 10
    except ValueError:
        raise InvalidRequest(f"{place}: must be a number, not {text[:40]!r}") from None
