"""`offramp models`: see and change which models a running server serves, and their aliases."""

from functools import partial
from typing import Annotated, TypeAlias

import typer

from serve.commands import terminal
from serve.commands.http_client import Json
from serve.commands.remote import Remote, ServerCommand, Why, quoted
from serve.errors import InvalidRequest

models = typer.Typer(
    help="See and change the models of a running server, and their aliases. Exit status: 0 done, "
    "1 refused, 2 wrong usage, 3 other changes came first, 4 the server was not reached, "
    "5 done, but not printed.",
    no_args_is_help=True,
)
command = partial(models.command, cls=ServerCommand)

Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="MODEL", help="Name that the model is served under.")
]
Force: TypeAlias = Annotated[
    bool, typer.Option("--force", help="Let the name stand for other labels, or another task.")
]


@command("list")
def list_models(ctx: typer.Context) -> None:
    """List the models that are served, and the bundles that could be loaded."""
    remote: Remote = ctx.obj
    remote.show(remote.server.call("GET", "/v1/models"), terminal.models)


@command()
def history(ctx: typer.Context) -> None:
    """List the aliases, and who has loaded, unloaded and moved what, when and why."""
    remote: Remote = ctx.obj
    remote.show(remote.server.call("GET", "/v1/aliases"), terminal.models_history)


@command()
def load(
    ctx: typer.Context,
    name: Name,
    bundle: Annotated[
        str | None,
        typer.Option(
            help="Bundle of the repository. Default: the model's own, or the one of its name."
        ),
    ] = None,
    force: Force = False,
    why: Why = None,
) -> None:
    """Load a model, or another bundle in the place of its own, without a failed request."""
    remote, path = ctx.obj, f"/v1/models/{quoted(name)}/load"
    answer = _change(remote, "POST", path, why, bundle=bundle, force=force or None)
    remote.show(answer, terminal.models_change)


@command()
def unload(ctx: typer.Context, name: Name, why: Why = None) -> None:
    """Stop serving a model; requests that it has accepted are answered."""
    remote, path = ctx.obj, f"/v1/models/{quoted(name)}/unload"
    answer = _change(remote, "POST", path, why)
    remote.show(answer, terminal.models_change)


@command()
def alias(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="`default` for requests that name no model.")],
    target: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Model that the alias shall name.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the alias.")] = False,
    force: Force = False,
    why: Why = None,
) -> None:
    """Let a name stand for a model; the same call with the model before undoes it."""
    if remove == (target is not None):
        raise InvalidRequest("give the model that the alias is to name, or --remove")
    remote: Remote = ctx.obj
    method, path = "DELETE" if remove else "PUT", f"/v1/aliases/{quoted(name)}"
    answer = _change(remote, method, path, why, model=target, force=(force and not remove) or None)
    remote.show(answer, terminal.models_change)


def _change(
    remote: Remote, method: str, path: str, why: str | None, **fields: str | bool | None
) -> Json:
    """Send a change, with a body if there is anything to say."""
    given = {name: value for name, value in fields.items() if value is not None}
    return remote.server.call(method, path, given | ({"reason": why} if why else {}) or None)
