"""Pydantic's findings as one sentence that says where, what, and what would be right."""

import json
from collections.abc import Iterable

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_MAX_FINDINGS = 5
_MAX_SHOWN_CHARS = 40


def explain(error: ValidationError) -> str:
    """Return the first findings of a validation error, joined by semicolons."""
    return explain_findings(error.errors(include_url=False))


def explain_findings(findings: Iterable[ErrorDetails]) -> str:
    """Return findings as one line; of several at one place only the first is told."""
    told: dict[str, str] = {}
    for finding in findings:
        told.setdefault(_place(finding), _message(finding))
    shown = list(told.items())[:_MAX_FINDINGS]
    return "; ".join(f"{where}: {what}" if where else what for where, what in shown)


def _place(finding: ErrorDetails) -> str:
    """Return the finding's location as a path, e.g. `inputs[2].text`."""
    path = ""
    loc = finding["loc"]
    for i, part in enumerate(loc):
        if isinstance(part, int):
            path += f"[{part}]"
        elif not _names_a_choice(loc, i):
            path += f".{part}" if path else part
    return path


def _names_a_choice(loc: tuple[int | str, ...], i: int) -> bool:
    """Tell whether a part is pydantic's name for a member of a union, not a field of the JSON.

    Our own tags stand in angle brackets; a rule's tag comes after one, or after a profile's name.
    """
    if str(loc[i]).startswith("<") or loc[i] == "[key]":
        return True
    after_rule = i >= 1 and loc[i - 1] in ("<rule>", "rule")
    return after_rule or (i >= 2 and loc[i - 2] == "profiles")


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
    r"^[A-Za-z0-9_.-]{1,64}$": "a name must be 1 to 64 letters, digits, '_', '-' or '.'",
}


def _message(finding: ErrorDetails) -> str:
    context = finding.get("ctx", {})
    if finding["type"] == "string_pattern_mismatch":
        pattern = context["pattern"]
        return _PATTERNS.get(pattern, f"must match {pattern}")
    if finding["type"] == "union_tag_invalid":
        return _unknown_kind(finding)
    template = _MESSAGES.get(finding["type"])
    if template:
        return template.format(**{k: str(v).replace("'", "") for k, v in context.items()})
    message = finding["msg"].removeprefix("Value error, ").removeprefix("Input should ")
    return f"must {message}{_shown(finding)}" if _was_expectation(finding) else message


def _unknown_kind(finding: ErrorDetails) -> str:
    """Return what was asked for and what there is: `unknown rule 'x', there are ...`."""
    context = {name: str(value).replace("'", "") for name, value in finding["ctx"].items()}
    kind, there_are = context["discriminator"], context["expected_tags"]
    return f"unknown {kind}{_quoted(finding['input'][kind], ' ')}, there are {there_are}"


def _was_expectation(finding: ErrorDetails) -> bool:
    return finding["msg"].startswith("Input should ")


def _shown(finding: ErrorDetails) -> str:
    """Return the offending value, if it is short."""
    return _quoted(finding.get("input"), ", not ")


def _quoted(value: object, before: str) -> str:
    """Return a text in quotes, or a number, `true` or `null` as in JSON; of others nothing."""
    if isinstance(value, str):
        return f"{before}{value!r}" if len(value) <= _MAX_SHOWN_CHARS else ""
    if value is not None and not isinstance(value, bool | int | float):
        return ""
    written = json.dumps(value)
    return f"{before}{written}" if len(written) <= _MAX_SHOWN_CHARS else ""
