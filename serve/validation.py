"""Turns pydantic's validation errors into one line: where, what, and what would be right."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

# Of texts: a line without control characters, of terminals too, and without what is not seen or
# turns the order of others round. The last ones are written out: engines differ in their escapes.
PRINTABLE = (
    r"^[^\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\U000e0000-\U000e0fff]*$"
)
_MAX_PLACES = 5
_MAX_QUOTED_CHARS = 40


class Frozen(BaseModel):
    """A part of a document: unknown fields, and numbers that are not finite, are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def unsaid() -> Any:
    """Return a field that is left out of documents that do not say it.

    Replicas, of different releases perhaps, compare hashes of documents.
    """
    return Field(default=None, exclude_if=lambda value: value is None)


class RequestModel(Frozen):
    """JSON that clients send: no conversion between types either."""

    model_config = ConfigDict(strict=True)


def read_share(written: str) -> float:
    """Return 0.03 for `3%`, `3 %` and `0.03`.

    Raises:
        ValueError: it is no number.
    """
    number = written.strip()
    try:
        return float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        raise ValueError(f"must be a share such as 0.03 or 3%, not {written[:40]!r}") from None


def _of_percent(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not re.fullmatch(r"\s*[0-9]+(\.[0-9]+)?\s*%\s*", value):
        raise ValueError(f'must be a share such as 0.03 or "3%"{_quoted(value, ", not ")}')
    return read_share(value)


# Behind a field's bounds: a share may also come as text such as `3%`.
OR_PERCENT: Final = BeforeValidator(_of_percent)


def place_of(part: str) -> str:
    """Return a name as a part of a place; `profiles."guard-1.0"` has two."""
    return part if re.fullmatch(r"[\w-]+", part) else json.dumps(part, ensure_ascii=False)


def explain(error: ValidationError, names: Mapping[str, str] | None = None) -> str:
    """Return the first errors as one line, joined by semicolons; one error per place.

    `names` has what the sender calls our top-level fields.
    """
    return explain_details(error.errors(include_url=False), names)


def explain_details(errors: Iterable[ErrorDetails], names: Mapping[str, str] | None = None) -> str:
    """Return errors as `explain` does."""
    messages: dict[str, str] = {}
    for details in errors:
        if details["type"] == "too_short" and len(details["input"]) >= details["ctx"]["min_length"]:
            continue  # pydantic leaves out what is wrong in a list, and then counts the rest
        messages.setdefault(_place(details, names or {}), _message(details))
    first = list(messages.items())[:_MAX_PLACES]
    return "; ".join(f"{place}: {message}" if place else message for place, message in first)


def _place(details: ErrorDetails, names: Mapping[str, str]) -> str:
    """Return the location as a path, e.g. `inputs[2].text`."""
    path = ""
    loc = details["loc"]
    if loc:
        loc = (names.get(str(loc[0]), loc[0]), *loc[1:])
    for i, part in enumerate(loc):
        if isinstance(part, int):
            path += f"[{part}]"
        elif not _is_union_tag(loc, i):
            path += f".{place_of(part)}" if path else part  # which may be a path itself
    return path


def _is_union_tag(loc: tuple[int | str, ...], i: int) -> bool:
    """Tell whether a part is the tag of a union's member, not a field of the JSON.

    Our own tags have angle brackets. A rule's tag follows one of them.
    """
    if str(loc[i]).startswith("<") or loc[i] == "[key]":
        return True
    return i >= 1 and loc[i - 1] in ("<rule>", "rule")


_MESSAGES = {
    "dataclass_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "extra_forbidden": "unknown field",
    "finite_number": "must be a finite number",
    "json_invalid": "the body is not JSON",
    "missing": "required field is missing",
    "model_attributes_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "string_unicode": "must be a text of valid Unicode",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must not be empty",
    "tuple_type": "must be a list",
    "union_tag_not_found": "must have a {discriminator}",
}

_PATTERNS = {
    r"\S": "must not be empty",
    PRINTABLE: "must be one line, without control characters and characters that are not seen",
    r"^[A-Za-z0-9_.-]{1,64}$": "a name must be 1 to 64 letters, digits, '_', '-' or '.'",
}


def _message(details: ErrorDetails) -> str:
    context = details.get("ctx", {})
    if details["type"] == "string_pattern_mismatch":
        pattern = context["pattern"]
        return _PATTERNS.get(pattern, f"must match {pattern}")
    if details["type"] == "union_tag_invalid":
        return _unknown_tag(details)
    template = _MESSAGES.get(details["type"])
    if template:
        return template.format(**{k: str(v).replace("'", "") for k, v in context.items()})
    message = details["msg"].removeprefix("Value error, ")
    expected = message.removeprefix("Input should ")
    if expected == message:
        return message
    return f"must {expected}{_quoted(details.get('input'), ', not ')}"


def _unknown_tag(details: ErrorDetails) -> str:
    """Return e.g. `unknown rule 'x', there are entropy, ...`."""
    # The context also has what was given, which may be long.
    given = details["ctx"]
    field, known = (
        str(given[name]).replace("'", "") for name in ("discriminator", "expected_tags")
    )
    return f"unknown {field}{_quoted(details['input'][field], ' ')}, there are {known}"


def _quoted(value: object, before: str) -> str:
    """Return a short text in quotes, or a number, `true` or `null` as in JSON; else nothing."""
    if isinstance(value, str):
        return f"{before}{value!r}" if len(value) <= _MAX_QUOTED_CHARS else ""
    if value is not None and not isinstance(value, bool | int | float):
        return ""
    encoded = json.dumps(value)
    return f"{before}{encoded}" if len(encoded) <= _MAX_QUOTED_CHARS else ""
