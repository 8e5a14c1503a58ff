"""How the answers of a server look in a terminal."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from serve.policy_cli.yaml_text import write_yaml

Fields = dict[str, Any]
# Makes the lines that an answer is shown as.
Show = Callable[[Fields], Iterator[Text]]
# What is shown of a profile's audits.
_QUALITY: Final = ("audits", "differences", "disagreement", "interval")


def print_lines(lines: Iterator[Text], to_stderr: bool = False) -> None:
    """Print lines; the terminal wraps the long ones, and a pipe gets them whole."""
    console = Console(stderr=to_stderr, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line)


def policy(fields: Fields) -> Iterator[Text]:
    """Show a version of the policy and what its targets have become, or a document alone."""
    if "version" not in fields:
        yield from _document(fields)
        return
    yield _heading(fields)
    yield from _why(fields)
    yield from _document(fields["policy"])
    resolved = fields.get("resolved", {})
    width = max(map(len, resolved), default=0)
    for name, chosen in resolved.items():
        yield Text(f"{plain(name):{width}}  {'; '.join(_resolved(chosen))}", "cyan")
        yield from problem(name, chosen.get("problem"))
    yield from problem("the deployment's config is refused", fields.get("config_problem"))


def history(fields: Fields) -> Iterator[Text]:
    """Show versions, newest first, with what each has changed."""
    for each in fields["entries"]:
        yield from entry(each)


def entry(fields: Fields) -> Iterator[Text]:
    """Show who has made a version, why, and what has changed."""
    yield _heading(fields)
    yield from _why(fields)
    yield from changes(fields)


def changes(fields: Fields) -> Iterator[Text]:
    """Show old and new value of each place."""
    for place, (old, new) in fields.get("changes", {}).items():
        line = Text(f"  {plain(place)}: ")
        if old is not None:
            line.append(_value(old), "red")
        line.append("" if old is None or new is None else " -> ")
        if new is not None:
            line.append(_value(new), "green")
        line.append(" (new)" if old is None else " (removed)" if new is None else "")
        yield line


def change(fields: Fields) -> Iterator[Text]:
    """Show the new version that a change has made, and what to know of it."""
    yield _heading(fields)
    yield from changes(fields)
    for name, chosen in fields.get("resolved", {}).items():
        yield from problem(name, chosen.get("problem"))
    for name in ("refused", "unconfirmed", "missing"):
        yield from problem(name, _inline(fields[name]) if fields.get(name) else None)


def dry_run(fields: Fields) -> Iterator[Text]:
    """Show what a change would do: to the document, and to the profiles that it concerns."""
    refused = fields.get("problem")
    yield from problem("would be refused", refused)
    yield from changes(fields)
    for name, sides in fields["profiles"].items():
        before, after = (dict(_side(sides.get(side))) for side in ("before", "after"))
        if before == after or (refused and not after):
            continue
        rows = [(plain(name), "before", "after")]
        rows += [(f"  {key}", before.get(key, "-"), after.get(key, "-")) for key in before | after]
        widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
        for i, (what, old, new) in enumerate(rows):
            style = "bold" if i == 0 else "" if old == new else "green"
            yield Text(f"{what:{widths[0]}}  {old:{widths[1]}}  {new}", style)


def _side(side: Fields | None) -> Iterator[tuple[str, str]]:
    """Yield what a profile becomes, and what that would do to recorded and to live texts."""
    if side is not None:
        yield "rule", _inline(side["resolved"]["rule"])
        yield from figures({"recorded": side.get("expected"), "live": side.get("live")})


def event(fields: Fields) -> Iterator[Text]:
    """Show an event of the stream: a new version, or what audits say of the promises."""
    data = fields["data"]
    if fields["event"] != "quality":
        yield from entry(data)
        return
    yield Text(f"quality  {plain(data['model'])}", "bold")
    for name, found in data["profiles"].items():
        told = dict(figures({key: found.get(key) for key in _QUALITY}))
        line = "  ".join(f"{key} {value}" for key, value in told.items())
        style = "red" if found["state"] == "broken" else ""
        yield Text(f"  {plain(name)}: {plain(found['state'])}  {line}", style)


def _document(policy: Fields) -> Iterator[Text]:
    for line in write_yaml(policy).splitlines():
        yield Text(plain(line))


def _resolved(chosen: Fields) -> Iterator[str]:
    """Yield the rule that a wish has become, what it costs, and what it is certified for."""
    yield _inline(chosen["rule"])
    if "expected_layers" in chosen:
        yield f"{chosen['expected_layers']:.4g} layers"
    certificate = chosen.get("certificate")
    for each in [certificate] if certificate else chosen.get("certificates", ()):
        yield f"{plain(each['loss'])} at most {_inline(each['epsilon'])}"


def _heading(fields: Fields) -> Text:
    known = (fields.get(name) for name in ("model", "at", "by"))
    words = [f"version {fields['version']}", *known, fields.get("action", fields.get("source"))]
    return Text("  ".join(plain(word) for word in words if word), "bold")


def _why(fields: Fields) -> Iterator[Text]:
    if fields.get("why"):
        yield Text(f"  {plain(fields['why'])}", "italic")


def problem(where: str, what: str | None) -> Iterator[Text]:
    """Show a problem, if there is one."""
    if what:
        yield Text(f"  {plain(where)}: {plain(what)}", "yellow")


def figures(values: Fields, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield place and text of everything that is not null; an interval stands behind its value."""
    bounds = {"disagreement": values.get("interval")}
    bounds |= {name: values.get(f"{name}_interval") for name in values.keys() - bounds.keys()}
    for name, value in values.items():
        if isinstance(value, dict) and "rule" not in value:
            yield from figures(value, f"{place}{name}.")
        elif value is not None and not name.endswith("interval"):
            interval = f" {_inline(bounds[name])}" if bounds[name] else ""
            yield plain(f"{place}{name}"), _inline(value) + interval


def _inline(value: Any) -> str:
    """Return a value of JSON as a few words."""
    if isinstance(value, dict):
        words = ((f"{plain(name)}=", _inline(inner)) for name, inner in value.items())
        return " ".join(f"{name}{word}".removeprefix("rule=") for name, word in words)
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, float):
        return f"{value:.4g}"
    return _value(value)


def _value(value: Any) -> str:
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def plain(text: str) -> str:
    """Return a text without what would move a terminal's cursor."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
