"""`offramp policy`: see, change and undo the live policy of a running server."""

from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from serve.commands import terminal
from serve.commands.editing import edit_policy
from serve.commands.http_client import CallFailed
from serve.commands.remote import PolicyCommand, Remote, Why
from serve.commands.yaml_text import read_candidate, read_document, read_patch

policy = typer.Typer(
    help="See, change and undo the live policy of a running server. Exit status: 0 done, "
    "1 refused, 2 wrong usage, 3 another version is current, 4 the server was not reached.",
    no_args_is_help=True,
)
command = partial(policy.command, cls=PolicyCommand)

Based: TypeAlias = Annotated[
    int | None,
    typer.Option("--version", help="Version that must be current. Default: the live one.", min=1),
]
Changes: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="CHANGE",
        help="PLACE=VALUE, such as profiles.fast.target.max_disagreement=0.02; null removes. Or a "
        "merge patch in braces.",
    ),
]
PolicyFile: TypeAlias = Annotated[
    Path, typer.Argument(help="A whole policy, YAML or JSON; - for stdin.")
]


@command()
def show(
    ctx: typer.Context,
    version: Annotated[
        int | None, typer.Argument(help="An earlier version. Default: the live one.", min=1)
    ] = None,
    document: Annotated[
        bool, typer.Option("--document", help="Only the policy, as a file for `set`.")
    ] = False,
) -> None:
    """Show the live policy and what its targets have become, or an earlier version."""
    remote: Remote = ctx.obj
    answer = remote.get(f"/history/{version}" if version else "")
    remote.show(answer["policy"] if document else answer, terminal.policy)


@command()
def history(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(help="Most versions to list.", min=1)] = 50,
) -> None:
    """List the versions, newest first: who has changed what, and why."""
    remote: Remote = ctx.obj
    remote.show(remote.get(f"/history?limit={limit}"), terminal.history)


@command()
def diff(
    ctx: typer.Context,
    old: Annotated[str, typer.Argument(help="A version, or a file: what `set` would change.")],
    new: Annotated[str, typer.Argument(help="A version or a file. Default: the live policy.")] = "",
) -> None:
    """Compare versions of the policy and files; exit status 0 if they are equal, 1 if not."""
    remote: Remote = ctx.obj
    if not new and not old.isdecimal():
        old, new = new, old
    try:
        found = remote.changes(old, new)
    except CallFailed as failed:
        raise CallFailed(str(failed), max(failed.exit_status, 2)) from None
    remote.show({"changes": found}, terminal.changes)
    raise typer.Exit(int(bool(found)))


@command()
def dry_run(
    ctx: typer.Context,
    changes: Changes = [],  # noqa: B006 - typer copies it
    file: Annotated[
        Path | None, typer.Option(help="A whole policy, YAML or JSON; - for stdin.")
    ] = None,
) -> None:
    """Show what a change would do, and change nothing; exit status 1 if it would be refused."""
    remote: Remote = ctx.obj
    answer = remote.send("POST", "/dry-run", **read_candidate(changes, file))
    remote.show(answer, terminal.dry_run)
    raise typer.Exit(int(bool(answer.get("problem"))))


@command("set")
def put(
    ctx: typer.Context,
    file: PolicyFile,
    version: Based = None,
    why: Why = None,
) -> None:
    """Put a policy in place of the whole live one."""
    remote: Remote = ctx.obj
    given = read_document(file)
    answer = remote.send("PUT", policy=given, version=version or remote.version(), why=why)
    remote.show(answer, terminal.change)


@command()
def patch(
    ctx: typer.Context,
    changes: Changes,
    version: Based = None,
    why: Why = None,
) -> None:
    """Change some places of the live policy."""
    remote: Remote = ctx.obj
    given = read_patch(changes)
    answer = remote.send("PATCH", patch=given, version=version or remote.version(), why=why)
    remote.show(answer, terminal.change)


@command()
def edit(
    ctx: typer.Context,
    why: Why = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Change the live policy in $EDITOR: see what it would do, then say yes or no."""
    remote: Remote = ctx.obj
    remote.show(edit_policy(remote, why, yes), terminal.change)


@command()
def rollback(
    ctx: typer.Context,
    to: Annotated[
        int, typer.Argument(metavar="VERSION", help="Version whose policy to go back to.", min=1)
    ],
    version: Based = None,
    why: Why = None,
) -> None:
    """Go back to the policy of an earlier version, as a new version."""
    remote: Remote = ctx.obj
    answer = remote.send("POST", "/rollback", to=to, version=version, why=why)
    remote.show(answer, terminal.change)


@command()
def watch(ctx: typer.Context) -> None:
    """Print what happens to the policy until Ctrl-C."""
    remote: Remote = ctx.obj
    for event in remote.server.events(f"{remote.path}/events", terminal.complain):
        remote.show(event, terminal.event)
