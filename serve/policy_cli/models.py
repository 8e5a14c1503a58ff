"""`offramp models`: see and change which models a running server serves, and their aliases."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated
from urllib.parse import quote

import typer
from rich.text import Text

from serve.errors import InvalidRequest
from serve.policy_cli.cli import Why, subcommand
from serve.policy_cli.remote import RemotePolicy
from serve.policy_cli.server import Answer
from serve.policy_cli.shown import Fields, plain, problem

models = typer.Typer(
    help="See and change the models of a running server, and their aliases. Exit status: 0 done, "
    "1 refused, 2 wrong usage, 3 other changes came first, 4 the server was not reached.",
    no_args_is_help=True,
)

command = partial(subcommand, group=models, one_model=False)

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Name that the model is served under.")]


def _listed(fields: Fields) -> Iterator[Text]:
    """Show what is served, and what could be."""
    names: dict[str, list[str]] = {}
    for alias, model in fields["aliases"].items():
        names.setdefault(model, []).append(alias)
    for each in fields["models"]:
        where = f"{each['precision']} on {each['device']}"
        ready = "" if each["ready"] else "  its engine does not run"
        called = f"  also {', '.join(names[each['name']])}" if each["name"] in names else ""
        line = f"{each['name']}  bundle {each['bundle'][:12]}  {each['layers']} layers  {where}"
        yield Text(plain(f"{line}{called}{ready}"), "" if each["ready"] else "red")
    for each in fields["repository"]:
        if not each["loaded"]:
            yield Text(plain(f"{each['name']}  not loaded"), "dim")


def _changed(fields: Fields) -> Iterator[Text]:
    """Show the set of models after a change, and the replicas that do not serve it."""
    served = (n if n == b else f"{n} (bundle {b})" for n, b in fields["models"].items())
    yield Text(plain(f"version {fields['version']}  {', '.join(served) or 'no model'}"), "bold")
    for alias, model in fields["aliases"].items():
        yield Text(plain(f"  {alias} -> {model}"))
    for each in fields["refused"]:
        yield from problem(f"replica {each['replica']}", each.get("problem"))
    if fields["unconfirmed"]:
        yield from problem("replicas that have not confirmed", str(fields["unconfirmed"]))


def _history(fields: Fields) -> Iterator[Text]:
    """Show the aliases, and what was changed, newest first."""
    for name, each in fields["aliases"].items():
        yield Text(plain(f"{name} -> {each['model']}  since {each['since']}  {each['by']}"), "bold")
    for each in fields["history"]:
        words = [
            f"{name} {each[name]}"
            for name in ("alias", "model", "from", "bundle", "why")
            if name in each
        ]
        yield Text(plain(f"{each['at']}  {each['by']}  {each['action']}  {', '.join(words)}"))


@command(_listed)
def _list(remote: RemotePolicy) -> Answer:
    """List the models that are served, and the bundles that could be loaded."""
    return remote.server.call("GET", "/v1/models")


@command(_history)
def history(remote: RemotePolicy) -> Answer:
    """List the aliases, and who has loaded, unloaded and moved what, when and why."""
    return remote.server.call("GET", "/v1/aliases")


@command(_changed)
def load(
    remote: RemotePolicy,
    name: Model,
    bundle: Annotated[
        str | None,
        typer.Option(help="Of the repository. If absent, the model's own, or that of its name."),
    ] = None,
    why: Why = None,
) -> Answer:
    """Load a model, or another bundle in the place of its own, without a failed request."""
    path = f"/v1/models/{quote(name, safe='')}/load"
    return _change(remote, "POST", path, why, bundle=bundle)


@command(_changed)
def unload(remote: RemotePolicy, name: Model, why: Why = None) -> Answer:
    """Serve a model no more; requests that it has taken are answered."""
    return _change(remote, "POST", f"/v1/models/{quote(name, safe='')}/unload", why)


@command(_changed)
def alias(
    remote: RemotePolicy,
    name: Annotated[str, typer.Argument(help="`default` for requests that name no model.")],
    target: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="That it is to name.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the alias.")] = False,
    why: Why = None,
) -> Answer:
    """Let a name stand for a model; the same call with the model before undoes it."""
    if remove == (target is not None):
        raise InvalidRequest("give the model that the alias is to name, or --remove")
    path = f"/v1/aliases/{quote(name, safe='')}"
    method = "DELETE" if target is None else "PUT"
    return _change(remote, method, path, why, model=target)


def _change(
    remote: RemotePolicy, method: str, path: str, why: str | None, **fields: str | None
) -> Answer:
    fields["reason"] = why or None
    given = {name: value for name, value in fields.items() if value is not None}
    return remote.server.call(method, path, given or None)
