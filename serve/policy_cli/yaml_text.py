"""Policies as YAML, which also takes JSON."""

import json
import re
from pathlib import Path
from typing import Any, Final

import yaml

from serve.errors import InvalidRequest

_NULL: Final = "tag:yaml.org,2002:null"
_WHOLE: Final = r"[-+]?(?:0|[1-9][0-9]*)"
_NUMBER: Final = rf"(?:{_WHOLE}(?:\.[0-9]*)?|[-+]?\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
# What is no string without quotes: YAML 1.2 as JSON has it. By YAML 1.1 a profile `off` would be
# `false`, and 1e-3 a string.
_SCALARS: Final = (
    (_NULL, r"null|~|", ["n", "~", ""]),
    ("tag:yaml.org,2002:bool", r"true|false", list("tf")),
    ("tag:yaml.org,2002:int", _WHOLE, list("-+0123456789")),
    ("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789")),
)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses names that come twice, of which the last would win in silence."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as its base declares it

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None or name in seen:
                problem = "this cannot be a name" if name is None else f"{name!r} comes twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(name)
        return dict(super().construct_mapping(node, deep))


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Puts in quotes what the loader would take for something else than a string."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


for _tag, _pattern, _first in _SCALARS:
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)


def read_yaml(text: str, name: str) -> Any:
    """Return what a text says, as JSON has it.

    Raises:
        InvalidRequest: it is not YAML, or has what JSON lacks; the message names the line.
    """
    try:
        # Through JSON, by which names that look like numbers become text.
        return json.loads(json.dumps(yaml.load(text, _Loader), allow_nan=False))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise InvalidRequest(f"{name}: {line}{error.problem or error.context}") from None
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{name}: {' '.join(str(error).split())}") from None


def read_document(path: Path) -> dict[str, Any]:
    """Return the policy in a file of YAML or JSON; `-` is standard input."""
    name = "standard input" if str(path) == "-" else str(path)
    with open(0 if str(path) == "-" else path, encoding="utf-8", errors="replace") as file:
        found = read_yaml(file.read(), name)
    if not isinstance(found, dict):
        raise InvalidRequest(f"{name}: must have fields such as `default: balanced`")
    return found


def read_patch(changes: list[str]) -> dict[str, Any]:
    """Return the merge patch of changes such as `profiles.fast.target.max_disagreement=0.02`.

    A change may also be a patch itself, in braces. Where two speak of a place, the last one counts.
    """
    patch: dict[str, Any] = {}
    for change in changes:
        place, _, value = change.partition("=")
        if change.lstrip().startswith("{"):
            place, value = "", change
        elif not value.strip() or not all(place.split(".")):
            raise InvalidRequest(f"{change}: must be PLACE=VALUE, or PLACE=null to remove it")
        inner = read_yaml(value, change)
        for name in reversed(place.split(".") if place else []):
            inner = {name: inner}
        patch = _merged(patch, inner)
    return patch


def write_yaml(document: Any) -> str:
    """Return a document of JSON as YAML."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


def _merged(one: Any, other: Any) -> Any:
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return one | {name: _merged(one.get(name), value) for name, value in other.items()}
