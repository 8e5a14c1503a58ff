"""`offramp policy`: see, change and undo the live policy of a running server."""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from serve.errors import InvalidRequest
from serve.policy_cli import shown
from serve.policy_cli.editing import edit_policy
from serve.policy_cli.events import events
from serve.policy_cli.options import LOCAL, KeyFile, TlsCa, TlsCert, Url, server_at
from serve.policy_cli.remote import RemotePolicy
from serve.policy_cli.server import Answer, CallFailed
from serve.policy_cli.yaml_text import read_document, read_patch

policy = typer.Typer(
    help="See, change and undo the live policy of a running server. Exit status: 0 done, "
    "1 refused, 2 wrong usage, 3 another version is current, 4 the server was not reached.",
    no_args_is_help=True,
)

Why = Annotated[str | None, typer.Option(help="Reason, for the history.")]
Based = Annotated[
    int | None,
    typer.Option("--version", help="Version that must be current. The live one if absent.", min=1),
]
Changes = Annotated[
    list[str],
    typer.Argument(
        metavar="CHANGE",
        help="PLACE=VALUE, such as profiles.fast.target.max_disagreement=0.02; null removes. Or a "
        "merge patch in braces.",
    ),
]
PolicyFile = Annotated[Path, typer.Argument(help="A whole policy, YAML or JSON; - for stdin.")]


def subcommand(
    show: shown.Show, group: typer.Typer = policy, one_model: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a command that prints the answers that a function gets, by `show` or as JSON.

    The function's parameters are the command's, and the options of `run` below; `--model` only if
    it is about one model.
    """

    def add(ask: Callable[..., Answer | Iterable[Answer]]) -> Callable[..., Any]:
        def run(
            url: Url = LOCAL,
            model: Annotated[
                str | None,
                typer.Option(envvar="OFFRAMP_MODEL", help="Needed where several are served."),
            ] = None,
            key_file: KeyFile = None,
            tls_ca: TlsCa = None,
            tls_cert: TlsCert = None,
            as_json: Annotated[
                bool, typer.Option("--json", help="Print what the server answers, for scripts.")
            ] = False,
            **own: Any,
        ) -> None:
            server = server_at(url, key_file, tls_ca, tls_cert)
            answers = ask(RemotePolicy(server, model), **own)
            for answer in [answers] if isinstance(answers, Answer) else answers:
                if as_json:
                    typer.echo(answer.text)
                else:
                    shown.print_lines(show(answer.fields))
                if answer.exit_status:
                    raise typer.Exit(answer.exit_status)

        _, *parameters = inspect.signature(ask).parameters.values()
        *options, _ = inspect.signature(run).parameters.values()
        common = [each for each in options if one_model or each.name != "model"]
        both = [each.replace(kind=each.KEYWORD_ONLY) for each in (*parameters, *common)]
        run.__signature__ = inspect.Signature(both)  # type: ignore[attr-defined]
        group.command(ask.__name__.strip("_").replace("_", "-"), help=ask.__doc__)(run)
        return ask

    return add


@subcommand(shown.policy)
def show(
    remote: RemotePolicy,
    version: Annotated[
        int | None, typer.Argument(help="An earlier version. The live one if absent.", min=1)
    ] = None,
    document: Annotated[
        bool, typer.Option("--document", help="Only the policy, as a file for `set`.")
    ] = False,
) -> Answer:
    """Show the live policy and what its targets have become, or an earlier version."""
    answer = remote.call("GET", f"/history/{version}" if version else "")
    if document:
        return Answer(json.dumps(answer.fields["policy"]))
    return answer


@subcommand(shown.history)
def history(
    remote: RemotePolicy,
    limit: Annotated[int, typer.Option(help="Most versions to list.", min=1)] = 50,
) -> Answer:
    """List the versions, newest first: who has changed what, and why."""
    return remote.call("GET", f"/history?limit={limit}")


@subcommand(shown.changes)
def diff(
    remote: RemotePolicy,
    old: Annotated[str, typer.Argument(help="A version, or a file: what `set` would change.")],
    new: Annotated[
        str, typer.Argument(help="A version or a file. The live policy if absent.")
    ] = "",
) -> Answer:
    """Compare versions of the policy and files; exit status 0 if they are equal, 1 if not."""
    if not new and not old.isdecimal():
        old, new = new, old
    try:
        found = remote.changes(old, new)
    except CallFailed as failed:
        raise CallFailed(str(failed), max(failed.exit_status, 2)) from None
    return Answer(json.dumps({"changes": found}), int(bool(found)))


@subcommand(shown.dry_run)
def dry_run(
    remote: RemotePolicy,
    changes: Changes = [],  # noqa: B006 - typer copies it
    file: Annotated[
        Path | None, typer.Option(help="A whole policy, YAML or JSON; - for stdin.")
    ] = None,
) -> Answer:
    """Show what a change would do, and change nothing; exit status 1 if it would be refused."""
    if bool(file) == bool(changes):
        raise InvalidRequest("give changes such as default=balanced, or --file with a policy")
    given = {"policy": read_document(file)} if file else {"patch": read_patch(changes)}
    answer = remote.call("POST", "/dry-run", **given)
    return answer._replace(exit_status=int(bool(answer.fields.get("problem"))))


@subcommand(shown.change)
def _set(remote: RemotePolicy, file: PolicyFile, version: Based = None, why: Why = None) -> Answer:
    """Put a policy in place of the whole live one."""
    given = read_document(file)
    return remote.call("PUT", policy=given, version=version or remote.version(), why=why)


@subcommand(shown.change)
def patch(remote: RemotePolicy, changes: Changes, version: Based = None, why: Why = None) -> Answer:
    """Change some places of the live policy."""
    given = read_patch(changes)
    return remote.call("PATCH", patch=given, version=version or remote.version(), why=why)


@subcommand(shown.change)
def edit(
    remote: RemotePolicy,
    why: Why = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> Answer:
    """Change the live policy in $EDITOR: see what it would do, then say yes or no."""
    return edit_policy(remote, why, yes)


@subcommand(shown.change)
def rollback(
    remote: RemotePolicy,
    to: Annotated[
        int, typer.Argument(metavar="VERSION", help="Whose policy to go back to.", min=1)
    ],
    version: Based = None,
    why: Why = None,
) -> Answer:
    """Go back to the policy of an earlier version, as a new version."""
    return remote.call("POST", "/rollback", to=to, version=version, why=why)


@subcommand(shown.event)
def watch(remote: RemotePolicy) -> Iterator[Answer]:
    """Print what happens to the policy until Ctrl-C."""
    return events(remote.server, f"{remote.path}/events", lambda text: typer.echo(text, err=True))
