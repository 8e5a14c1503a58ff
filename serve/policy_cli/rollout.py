"""`offramp rollout`: let a share of the requests follow a candidate before it is the policy."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from serve.errors import InvalidRequest
from serve.policy_cli import shown
from serve.policy_cli.cli import Why, subcommand
from serve.policy_cli.remote import RemotePolicy
from serve.policy_cli.server import Answer
from serve.policy_cli.yaml_text import read_document, read_patch

rollout = typer.Typer(
    help="Let a growing share of the requests follow another policy before it is the policy. Exit "
    "status as of `offramp policy`; 3 also where a rollout is not in the state that is needed.",
    no_args_is_help=True,
)
command = partial(subcommand, group=rollout)

Based = Annotated[
    int | None, typer.Option("--version", help="Version that must be current. Default: any.", min=1)
]


def show(fields: shown.Fields) -> Iterator[Text]:
    """Show a rollout: its state, what its arms have answered, and its moves."""
    if fields["state"] == "none":
        yield Text(f"{shown.plain(fields['model'])}: there was no rollout")
        return
    words = f"{fields['state']}  {fields['percent']:g} %  step {fields['step'] + 1} of "
    yield Text(f"{shown.plain(fields['model'])}  {words}{len(fields['steps'])}", "bold")
    failed = fields["verdict"] == "failed"
    yield Text(f"  verdict: {fields['verdict']}", "red" if failed else "")
    if "why" in fields:
        yield Text(f"  {shown.plain(fields['why'])}", "italic")
    if "ends_at" in fields:
        yield Text(f"  judged from {fields['ends_at']} on")
    for name, arm in fields["arms"].items():
        yield Text(name, "bold")
        verdicts = arm.get("verdicts", {})
        for place, value in shown.figures(_figures(arm)):
            said = verdicts.get(place, "")
            yield Text(f"  {place:13}  {value}  {said}".rstrip(), "red" if said == "failed" else "")
    for each in fields["history"]:
        move = f"{each['at']}  {each['action']}  {each['percent']:g} %  {each['by']}"
        yield Text(shown.plain(f"version {each['version']}  {move}"))


def _figures(arm: shown.Fields) -> shown.Fields:
    """Return the figures of an arm with their intervals."""
    layers, audited, failed = arm["layers"], arm["disagreement"], arm["error_rate"]
    slow = arm.get("slow", {})
    return {
        **{name: arm.get(name) for name in ("answers", "requests", "p99_ms")},
        "slow": slow.get("rate"),
        "slow_interval": _interval(slow) if slow else None,
        "errors": failed.get("rate"),
        "errors_interval": _interval(failed),
        "layers": layers.get("mean"),
        "layers_interval": _interval(layers),
        "audits": audited["audits"],
        "skipped": audited["skipped"] or None,
        "disagreement": audited.get("rate"),
        "interval": _interval(audited),
    }


def _interval(figure: shown.Fields) -> list[float]:
    return [figure["low"], figure["high"]]


def _bounds(given: dict[str, float | None]) -> dict[str, float]:
    found = {name: bound for name, bound in given.items() if bound is not None}
    if not found:
        raise InvalidRequest(
            "give at least one bound: --disagreement, --p99-ms, --layers or --errors"
        )
    return found


@command(show)
def start(  # noqa: PLR0913, PLR0917 - a command's options
    remote: RemotePolicy,
    changes: Annotated[
        list[str],
        typer.Argument(metavar="CHANGE", help="The candidate, as changes of the live policy."),
    ] = [],  # noqa: B006 - typer copies it
    file: Annotated[
        Path | None, typer.Option(help="The candidate as a whole; YAML or JSON, - for stdin.")
    ] = None,
    steps: Annotated[str, typer.Option(help="Percent of the requests.")] = "5,25,50,100",
    hold_s: Annotated[float, typer.Option(help="Least seconds of each step.")] = 600.0,
    min_answers: Annotated[int, typer.Option(help="Least answers of each step.")] = 1000,
    disagreement: Annotated[
        float | None, typer.Option(help="Most of its answers that differ from full depth's.")
    ] = None,
    p99_ms: Annotated[float | None, typer.Option(help="Most time of 99 % of requests.")] = None,
    layers: Annotated[float | None, typer.Option(help="Most layers, on average.")] = None,
    errors: Annotated[float | None, typer.Option(help="Most requests that fail.")] = None,
    on_inconclusive: Annotated[
        str, typer.Option(help="After a step that tells too little: pause, promote or abort.")
    ] = "pause",
    audit_share: Annotated[float, typer.Option(help="Share of texts to audit, at least.")] = 0.2,
    by: Annotated[str, typer.Option(help="Who follows: a share of each key, or request.")] = "key",
    delta: Annotated[float, typer.Option(help="Chance of a wrong verdict.")] = 0.05,
    version: Based = None,
    why: Why = None,
) -> Answer:
    """Let a share of the requests follow a candidate."""
    if bool(file) == bool(changes):
        raise InvalidRequest("give changes such as default=balanced, or --file with a policy")
    given = {"policy": read_document(file)} if file else {"patch": read_patch(changes)}
    bounds = {"disagreement": disagreement, "p99_ms": p99_ms, "layers": layers, "errors": errors}
    return remote.call(
        "POST", "/rollout", **given, bounds=_bounds(bounds), steps=_percents(steps), hold_s=hold_s,
        min_answers=min_answers, on_inconclusive=on_inconclusive, audit_share=audit_share, by=by,
        delta=delta, version=version, why=why,
    )  # fmt: skip


def _percents(steps: str) -> list[float]:
    try:
        return [float(step) for step in steps.split(",")]
    except ValueError:
        raise InvalidRequest("--steps: must be percentages such as 5,25,50,100") from None


@command(show)
def status(remote: RemotePolicy) -> Answer:
    """Show the rollout that runs, or else the last one."""
    return remote.call("GET", "/rollout")


@command(show)
def promote(remote: RemotePolicy, version: Based = None, why: Why = None) -> Answer:
    """Go on to the next step now; after the last one the candidate becomes the policy."""
    return _move(remote, "promote", version, why)


@command(show)
def pause(remote: RemotePolicy, version: Based = None, why: Why = None) -> Answer:
    """Keep the share as it is; a bound that is broken still ends the rollout."""
    return _move(remote, "pause", version, why)


@command(show)
def resume(remote: RemotePolicy, version: Based = None, why: Why = None) -> Answer:
    """Begin the step of a paused rollout anew."""
    return _move(remote, "resume", version, why)


@command(show)
def abort(remote: RemotePolicy, version: Based = None, why: Why = None) -> Answer:
    """Go back to the policy for all requests."""
    return _move(remote, "abort", version, why)


def _move(remote: RemotePolicy, move: str, version: int | None, why: str | None) -> Answer:
    given: dict[str, Any] = {"version": version, "why": why}
    return remote.call("POST", f"/rollout/{move}", **given)
