"""How the answers of a server look in a terminal."""

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

from serve.commands.yaml_text import write_yaml

Fields: TypeAlias = dict[str, Any]
# What is shown of a profile's audits.
_QUALITY: Final = ("audits", "differences", "disagreement", "interval")


def print_lines(lines: Iterator[Text], to_stderr: bool = False) -> None:
    """Print lines, cleaned; the terminal wraps the long ones, and a pipe gets them whole."""
    console = Console(stderr=to_stderr, highlight=False, soft_wrap=True)
    for line in lines:
        line.plain = plain(line.plain)
        console.print(line)


def complain(message: str) -> None:
    """Print what went wrong beside an answer."""
    typer.echo(plain(message), err=True)


def plain(text: str) -> str:
    """Return a line of the same length without what would move a terminal's cursor.

    What a server says goes through here, at the one place where it is printed.
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def policy(fields: Fields) -> Iterator[Text]:
    """Show a version of the policy and what its targets have become, or a document alone."""
    if "version" not in fields:
        yield from _document(fields)
        return
    yield from _heading(fields)
    yield from _document(fields["policy"])
    resolved = fields.get("resolved", {})
    if resolved:
        yield Text()
        yield Text("What default and profiles have become:", "bold")
    width = max(map(len, resolved), default=0)
    for name, chosen in resolved.items():
        yield Text(f"{name:{width}}  {'; '.join(_resolved(chosen))}", "cyan")
        yield from _problem(name, chosen.get("problem"))
    yield from _problem("the deployment's config is refused", fields.get("config_problem"))


def history(fields: Fields) -> Iterator[Text]:
    """Show versions, newest first, with what each has changed."""
    for each in fields["entries"]:
        yield from _entry(each)


def changes(fields: Fields) -> Iterator[Text]:
    """Show old and new value of each place."""
    for place, (old, new) in fields.get("changes", {}).items():
        line = Text(f"  {place}: ")
        if old is not None:
            line.append(_value(old), "red")
        line.append("" if old is None or new is None else " -> ")
        if new is not None:
            line.append(_value(new), "green")
        line.append(" (new)" if old is None else " (removed)" if new is None else "")
        yield line


def change(fields: Fields) -> Iterator[Text]:
    """Show the new version that a change has made, and what to know of it."""
    yield from _heading({**fields, "why": None})
    yield from changes(fields)
    if not (fields.get("changes") or fields.get("rollout")):
        yield Text("  nothing was changed")
    if ended := fields.get("rollout"):
        yield from _problem(f"rollout {ended['state']}", ended.get("why"))
    for name, chosen in fields.get("resolved", {}).items():
        yield from _problem(name, chosen.get("problem"))
    for name in ("refused", "unconfirmed", "missing"):
        yield from _problem(name, _inline(fields[name]) if fields.get(name) else None)


def dry_run(fields: Fields) -> Iterator[Text]:
    """Show what a change would do: to the document, and to the profiles that it concerns."""
    refused = fields.get("problem")
    yield from _problem("would be refused", refused)
    yield from changes(fields)
    for name, sides in fields["profiles"].items():
        before, after = (dict(_side(sides.get(side))) for side in ("before", "after"))
        if before == after or (refused and not after):
            continue
        rows = [(name, "before", "after")]
        rows += [(f"  {key}", before.get(key, "-"), after.get(key, "-")) for key in before | after]
        widths = [max(len(row[i]) for row in rows) for i in (0, 1)]
        for i, (what, old, new) in enumerate(rows):
            style = "bold" if i == 0 else "" if old == new else "green"
            yield Text(f"{what:{widths[0]}}  {old:{widths[1]}}  {new}", style)


def event(fields: Fields) -> Iterator[Text]:
    """Show an event of the stream: a new version, or what audits say of the promises."""
    data = fields["data"]
    if fields["event"] != "quality":
        yield from _entry(data)
        return
    yield Text(f"quality  {data['model']}", "bold")
    for name, found in data["profiles"].items():
        told = dict(_figures({key: found.get(key) for key in _QUALITY}))
        line = "  ".join(f"{key} {value}" for key, value in told.items())
        style = "red" if found["state"] == "broken" else ""
        yield Text(f"  {name}: {found['state']}  {line}", style)


def rollout(fields: Fields) -> Iterator[Text]:
    """Show a rollout: its state, what its arms have answered, and its moves."""
    if fields["state"] == "none":
        yield Text(f"{fields['model']}: there was no rollout")
        return
    words = f"{fields['state']}  {fields['percent']:g} %  step {fields['step'] + 1} of "
    yield Text(f"{fields['model']}  {words}{len(fields['steps'])}", "bold")
    failed = fields["verdict"] == "failed"
    yield Text(f"  verdict: {fields['verdict']}", "red" if failed else "")
    if "why" in fields:
        yield Text(f"  {fields['why']}", "italic")
    if "note" in fields:
        yield Text(f"  {fields['note']}", "yellow")
    if "ends_at" in fields:
        yield Text(f"  judged from {fields['ends_at']} on")
    for name, arm in fields["arms"].items():
        yield Text(name, "bold")
        verdicts = arm.get("verdicts", {})
        for place, value in _figures(_of_arm(arm)):
            said = verdicts.get(place, "")
            yield Text(f"  {place:13}  {value}  {said}".rstrip(), "red" if said == "failed" else "")
    for each in fields["history"]:
        move = f"{each['at']}  {each['action']}  {each['percent']:g} %  {each['by']}"
        yield Text(f"version {each['version']}  {move}")


def _of_arm(arm: Fields) -> Fields:
    """Return the figures of an arm with their intervals."""
    layers, audited, failed, slow = (
        arm.get(name, {}) for name in ("layers", "disagreement", "error_rate", "slow")
    )
    return {
        **{name: arm.get(name) for name in ("answers", "requests", "uncounted", "p99_ms")},
        "slow": slow.get("rate"),
        "slow_interval": _interval(slow),
        "errors": failed.get("rate"),
        "errors_interval": _interval(failed),
        "layers": layers.get("mean"),
        "layers_interval": _interval(layers),
        "audits": audited["audits"],
        "skipped": audited["skipped"] or None,
        "unseen": audited.get("unseen") or None,
        "disagreement": audited.get("rate"),
        "interval": _interval(audited),
    }


def _interval(figure: Fields) -> list[float] | None:
    return [figure["low"], figure["high"]] if "low" in figure else None


def models(fields: Fields) -> Iterator[Text]:
    """Show which models are served, and which bundles could be."""
    names: dict[str, list[str]] = {}
    for alias, model in fields["aliases"].items():
        names.setdefault(model, []).append(alias)
    for each in fields["models"]:
        where = f"{each['precision']} on {each['device']}"
        ready = "" if each["ready"] else "  its engine does not run"
        called = f"  also {', '.join(names[each['name']])}" if each["name"] in names else ""
        line = f"{each['name']}  bundle {each['bundle'][:12]}  {each['layers']} layers  {where}"
        yield Text(f"{line}{called}{ready}", "" if each["ready"] else "red")
    for each in fields["repository"]:
        if not each["loaded"]:
            yield Text(f"{each['name']}  not loaded", "dim")


def models_change(fields: Fields) -> Iterator[Text]:
    """Show the set of models after a change, and the replicas that do not serve it."""
    served = (n if n == b else f"{n} (bundle {b})" for n, b in fields["models"].items())
    yield Text(f"version {fields['version']}  {', '.join(served) or 'no model'}", "bold")
    for alias, model in fields["aliases"].items():
        yield Text(f"  {alias} -> {model}")
    change = fields.get("change", {})
    old, new = change.get("from_sha256"), change.get("sha256")
    if old and new and old != new:
        name = change.get("alias", change["model"])
        yield Text(f"  {name}: bundle {old[:12]} -> {new[:12]}")
    for each in fields["refused"]:
        yield from _problem(f"replica {each['replica']}", each.get("problem"))
    if fields["unconfirmed"]:
        yield from _problem("replicas that have not confirmed", str(fields["unconfirmed"]))


def models_history(fields: Fields) -> Iterator[Text]:
    """Show the aliases, and what was changed, newest first."""
    for name, each in fields["aliases"].items():
        yield Text(f"{name} -> {each['model']}  since {each['since']}  {each['by']}", "bold")
    for each in fields["history"]:
        words = [
            f"{name} {each[name]}"
            for name in ("alias", "model", "from", "bundle", "why")
            if name in each
        ]
        yield Text(f"{each['at']}  {each['by']}  {each['action']}  {', '.join(words)}")


def _entry(fields: Fields) -> Iterator[Text]:
    """Show who has made a version, why, and what has changed."""
    yield from _heading(fields)
    yield from changes(fields)


def _heading(fields: Fields) -> Iterator[Text]:
    known = [fields.get(name) for name in ("model", "at", "by")]
    done = fields.get("action", fields.get("source"))
    words = [f"version {fields['version']}", *known, *([] if done in known else [done])]
    yield Text("  ".join(word for word in words if word), "bold")
    if fields.get("why"):
        yield Text(f"  {fields['why']}", "italic")


def _document(policy: Fields) -> Iterator[Text]:
    for line in write_yaml(policy).splitlines():
        yield Text(line)


def _side(side: Fields | None) -> Iterator[tuple[str, str]]:
    """Yield what a profile becomes, and what that would do to recorded and to live texts."""
    if side is not None:
        live = dict(side.get("live") or {})
        few = live.pop("too_few", None)
        yield "rule", _inline(side["resolved"]["rule"])
        yield from _figures({"recorded": side.get("expected"), "live": live})
        if few:
            yield "live", "too few texts to tell"


def _resolved(chosen: Fields) -> Iterator[str]:
    """Yield the rule that a wish has become, what it costs, and what it is certified for."""
    yield _inline(chosen["rule"])
    if "expected_layers" in chosen:
        yield f"{chosen['expected_layers']:.4g} layers"
    certificate = chosen.get("certificate")
    for each in [certificate] if certificate else chosen.get("certificates", ()):
        yield f"{each['loss']} at most {_inline(each['epsilon'])}"


def _problem(where: str, what: str | None) -> Iterator[Text]:
    """Show a problem, if there is one."""
    if what:
        yield Text(f"  {where}: {what}", "yellow")


def _figures(values: Fields, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield place and text of everything that is not null; an interval stands behind its value."""
    bounds = {"disagreement": values.get("interval")}
    bounds |= {name: values.get(f"{name}_interval") for name in values.keys() - bounds.keys()}
    for name, value in values.items():
        if isinstance(value, dict) and "rule" not in value:
            yield from _figures(value, f"{place}{name}.")
        elif value is not None and not name.endswith("interval"):
            interval = f" {_inline(bounds[name])}" if bounds[name] else ""
            yield f"{place}{name}", _inline(value) + interval


def _inline(value: Any) -> str:
    """Return a value of JSON as a few words."""
    if isinstance(value, dict):
        words = ((f"{name}=", _inline(inner)) for name, inner in value.items())
        return " ".join(f"{name}{word}".removeprefix("rule=") for name, word in words)
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, float):
        return f"{value:.4g}"
    return _value(value)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
