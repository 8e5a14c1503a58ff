"""Policies in files of YAML, which also takes JSON, and on the command line."""

import json
import math
import re
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from serve.bounded_file import UnfitFile, read_file
from serve.errors import InvalidRequest

# The server takes policies of 2 MiB, if it is not told otherwise.
_MOST_BYTES: Final = 4 << 20
_PART: Final = r'"(?:[^"\\]|\\["\\])+"|[^".=]+'
_CHANGE: Final = re.compile(rf"((?:{_PART})(?:\.(?:{_PART}))*)=(.*\S.*)", re.DOTALL)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses names that come twice, of which the last would win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for i, name in enumerate(names):
            if type(name) not in (str, int) or name in names[:i]:
                problem = f"{name!r} {'comes twice' if name in names[:i] else 'cannot be a name'}"
                mark = node.value[i][0].start_mark
                raise yaml.constructor.ConstructorError(None, None, problem, mark)
        return dict(super().construct_mapping(node, deep))


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Puts in quotes what the loader takes for a number."""


for _kind in (_Loader, _Dumper):
    # A number in JSON and for every reader, but a string for PyYAML.
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+\Z"),
        list("-+0123456789"),
    )


def read_yaml(text: str, name: str) -> Any:
    """Return what a text says, as JSON has it.

    Raises:
        InvalidRequest: it is not YAML, or has what JSON lacks; the message names the line.
    """
    try:
        found = yaml.load(text, _Loader)
        # Through JSON, by which names that look like numbers become text.
        encoded = json.dumps(found)
        if place := _not_finite(found):
            raise InvalidRequest(f"{name}: {place} must be a finite number")
        return json.loads(encoded)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise InvalidRequest(f"{name}: {line}{error.problem or error.context}") from None
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{name}: {' '.join(str(error).split())}") from None


def read_document(path: Path) -> dict[str, Any]:
    """Return the fields in a file of YAML or JSON; `-` is standard input.

    Raises:
        InvalidRequest: it has none, is too large, or is no regular file.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        content = _standard_input() if str(path) == "-" else read_file(path, _MOST_BYTES)
    except UnfitFile as error:
        raise InvalidRequest(f"{name}: {error}") from None
    found = read_yaml(content.decode("utf-8", "replace"), name)
    if not isinstance(found, dict):
        raise InvalidRequest(f"{name}: must have fields and their values, such as `name: value`")
    return found


def _standard_input() -> bytes:
    content = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise UnfitFile(f"has more bytes than {_MOST_BYTES}")
    return content


def read_patch(changes: list[str]) -> dict[str, Any]:
    """Return the merge patch of changes such as `profiles.fast.target.max_disagreement=0.02`.

    Parts with other signs than letters, digits, _ and - stand in quotes: `profiles."guard-1.0"`. A
    change may also be a patch itself, in braces. Where two speak of a place, the last one counts.
    """
    patch: dict[str, Any] = {}
    for change in changes:
        place, value = "", change
        if not change.lstrip().startswith("{"):
            found = _CHANGE.fullmatch(change)
            if not found:
                raise InvalidRequest(f"{change}: must be PLACE=VALUE, or PLACE=null to remove it")
            place, value = found.groups()
        inner: Any = read_yaml(value, change)
        for name in reversed(re.findall(_PART, place)):
            inner = {json.loads(name, strict=False) if name[0] == '"' else name: inner}
        patch = _merged(patch, inner)
    return patch


def read_candidate(changes: list[str], file: Path | None) -> dict[str, Any]:
    """Return the field of a request that has a policy: whole from a file, or as a patch."""
    if bool(file) == bool(changes):
        raise InvalidRequest("give changes such as default=balanced, or --file with a policy")
    return {"policy": read_document(file)} if file else {"patch": read_patch(changes)}


def write_yaml(document: Any) -> str:
    """Return a document of JSON as YAML."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


def _not_finite(value: Any, place: str = "") -> str | None:
    """Return the place of a number that JSON lacks, such as `.nan`; None if there is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return place or "it"
    inner: Any = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    found = (_not_finite(each, f"{place}.{name}".lstrip(".")) for name, each in inner)
    return next(filter(None, found), None)


def _merged(one: Any, other: Any) -> Any:
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return one | {name: _merged(one.get(name), value) for name, value in other.items()}
