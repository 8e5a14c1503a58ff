"""`offramp policy`: see, change, edit and undo the live policy of a running server."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from serve.commands import terminal
from serve.commands.http_client import CallFailed, Json
from serve.commands.remote import PolicyCommand, Remote, Why
from serve.commands.yaml_text import read_candidate, read_document, read_patch, write_yaml
from serve.errors import InvalidRequest

_HEAD = """\
# The policy of {model}, version {version}. Save and leave the editor to see what a change would do;
# you are asked before anything changes. A file that is left as it is changes nothing.
"""


def edit_policy(remote: Remote, why: str | None, sure: bool) -> Json:
    """Let an editor change the live policy, dry-run it, ask unless sure, and put it.

    What was written stays in its file until the server has it.
    """
    live = remote.get()
    handle, name = tempfile.mkstemp(prefix="offramp-policy-", suffix=".yaml")
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        opened.write(
            _HEAD.format(model=terminal.plain(str(live["model"])), version=live["version"])
            + write_yaml(live["policy"])
        )
    file = Path(name)
    begun = file.read_bytes()
    try:
        answer = _edit(remote, file, live, why, sure)
    except BaseException:
        if file.exists() and file.read_bytes() != begun:
            typer.echo(f"What you have written is kept: offramp policy diff {file}", err=True)
        else:
            file.unlink(missing_ok=True)
        raise
    file.unlink()
    return answer


def _edit(remote: Remote, file: Path, live: Json, why: str | None, sure: bool) -> Json:
    while True:
        _run_editor(file)
        written, fit = _tried(remote, file, live["policy"])
        if written == live["policy"]:
            typer.echo("Nothing was changed.", err=True)
            return live
        reply = _reply(fit, sure)
        if reply == "y":
            return remote.send("PUT", policy=written, version=live["version"], why=why)
        if reply != "e":
            raise CallFailed("nothing was changed", 1)


def _tried(remote: Remote, file: Path, live: Any) -> tuple[Any, bool]:
    """Print what would become of what was written; return it, and whether it can be put."""
    written = None
    try:
        written = read_document(file)
        if written == live:
            return written, True
        answer = remote.send("POST", "/dry-run", policy=written)
    except (CallFailed, InvalidRequest) as error:
        if isinstance(error, CallFailed) and error.exit_status != 1:
            raise
        terminal.complain(f"offramp: {error}")
        return written, False
    terminal.print_lines(terminal.dry_run(answer), to_stderr=True)
    return written, not answer.get("problem")


def _reply(fit: bool, sure: bool) -> str:
    if sure:
        return "y" if fit else "n"
    typer.echo(f"{'[y]es, ' * fit}[e]dit again or [n]o change? ", nl=False, err=True)
    reply = sys.stdin.readline().strip().lower()[:1]
    return reply if fit or reply == "e" else "n"


def _run_editor(file: Path) -> None:
    """Run the editor until it ends; Ctrl-C is the editor's."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        ended = subprocess.run([*shlex.split(named), str(file)], check=False)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"the editor {named!r} cannot be run ({error}); set EDITOR") from None
    finally:
        signal.signal(signal.SIGINT, before)
    if ended.returncode:
        raise CallFailed(
            f"{named} has ended with status {ended.returncode}; nothing was changed", 1
        )


policy = typer.Typer(
    help="See, change and undo the live policy of a running server. Exit status: 0 done, "
    "1 refused, 2 wrong usage, 3 another version is current, 4 the server was not reached, "
    "5 done, but not printed.",
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
