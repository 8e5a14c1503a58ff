"""`offramp rollout`: let a share of the requests follow a candidate before it is the policy."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from serve.commands import terminal
from serve.commands.remote import PolicyCommand, Remote, Why
from serve.commands.yaml_text import read_candidate
from serve.errors import InvalidRequest
from serve.policy.rollout import Plan
from serve.validation import read_share

rollout = typer.Typer(
    help="Let a growing share of the requests follow another policy before it is the policy. Exit "
    "status as of `offramp policy`; 3 also where a rollout is not in the state that is needed.",
    no_args_is_help=True,
)
command = partial(rollout.command, cls=PolicyCommand)

Based: TypeAlias = Annotated[
    int | None, typer.Option("--version", help="Version that must be current. Default: any.", min=1)
]
of_share = partial(typer.Option, parser=read_share, metavar="SHARE")
_DEFAULTS: Final = {name: field.default for name, field in Plan.model_fields.items()}


@command()
def start(
    ctx: typer.Context,
    changes: Annotated[
        list[str],
        typer.Argument(metavar="CHANGE", help="The candidate, as changes of the live policy."),
    ] = [],  # noqa: B006 - typer copies it
    file: Annotated[
        Path | None, typer.Option(help="The candidate as a whole; YAML or JSON, - for stdin.")
    ] = None,
    steps: Annotated[
        str, typer.Option(help="Percent of the requests that follow the candidate, step by step.")
    ] = ",".join(f"{percent:g}" for percent in _DEFAULTS["steps"]),
    hold_s: Annotated[float, typer.Option(help="Least seconds of each step.")] = _DEFAULTS[
        "hold_s"
    ],
    min_answers: Annotated[int, typer.Option(help="Least answers of each step.")] = _DEFAULTS[
        "min_answers"
    ],
    disagreement: Annotated[
        float | None,
        of_share(help="Largest share of its answers that may differ from full depth's."),
    ] = None,
    p99_ms: Annotated[
        float | None, typer.Option(help="Longest time that 99 % of its requests may take.")
    ] = None,
    layers: Annotated[
        float | None, typer.Option(help="Most layers that its answers may take on average.")
    ] = None,
    errors: Annotated[
        float | None, of_share(help="Largest share of its requests that may fail.")
    ] = None,
    on_inconclusive: Annotated[
        str,
        typer.Option(help="What follows a step that tells too little: pause, promote or abort."),
    ] = _DEFAULTS["on_inconclusive"],
    audit_share: Annotated[
        float | None, of_share(help="Least share of texts to audit. Default: 20%.")
    ] = None,
    version: Based = None,
    why: Why = None,
) -> None:
    """Let a share of the requests follow a candidate."""
    remote: Remote = ctx.obj
    bounds = {"disagreement": disagreement, "p99_ms": p99_ms, "layers": layers, "errors": errors}
    plan = {
        "bounds": _bounds(bounds), "steps": _percents(steps), "hold_s": hold_s,
        "min_answers": min_answers, "on_inconclusive": on_inconclusive,
        "audit_share": _DEFAULTS["audit_share"] if audit_share is None else audit_share,
    }  # fmt: skip
    candidate = read_candidate(changes, file)
    answer = remote.send("POST", "/rollout", **candidate, **plan, version=version, why=why)
    remote.show(answer, terminal.rollout)


@command()
def status(ctx: typer.Context) -> None:
    """Show the rollout that runs, or else the last one."""
    remote: Remote = ctx.obj
    remote.show(remote.get("/rollout"), terminal.rollout)


@command()
def promote(
    ctx: typer.Context,
    version: Annotated[
        int, typer.Option(help="Version at which `status` has shown the rollout.", min=1)
    ],
    why: Why = None,
) -> None:
    """Go on to the next step now; after the last one the candidate becomes the policy."""
    _move(ctx, "promote", version, why)


def _moving(name: str) -> Callable[..., None]:
    """Return a command that moves the rollout."""

    def move(ctx: typer.Context, version: Based = None, why: Why = None) -> None:
        _move(ctx, name, version, why)

    return move


def _move(ctx: typer.Context, name: str, version: int | None, why: str | None) -> None:
    remote: Remote = ctx.obj
    answer = remote.send("POST", f"/rollout/{name}", version=version, why=why)
    remote.show(answer, terminal.rollout)


for _name, _help in {
    "pause": "Keep the share as it is; a bound that is broken still ends the rollout.",
    "resume": "Begin the step of a paused rollout anew.",
    "abort": "Go back to the policy for all requests.",
}.items():
    command(_name, help=_help)(_moving(_name))


def _bounds(given: dict[str, float | None]) -> dict[str, float]:
    found = {name: bound for name, bound in given.items() if bound is not None}
    if not found:
        raise InvalidRequest(
            "give at least one bound: --disagreement, --p99-ms, --layers or --errors"
        )
    return found


def _percents(steps: str) -> list[float]:
    try:
        return [float(step.strip().removesuffix("%")) for step in steps.split(",")]
    except ValueError:
        raise InvalidRequest("--steps: must be percentages such as 5,25,50,100") from None
