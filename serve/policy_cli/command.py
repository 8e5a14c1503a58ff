"""A command of a terminal from a function that calls a server."""

import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from serve.policy_cli import shown
from serve.policy_cli.remote import RemotePolicy
from serve.policy_cli.server import Answer, Server, read_key, read_tls


def add_command(
    app: typer.Typer, show: shown.Show
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a command to an app that prints the answers that a function gets, by `show` or as JSON.

    The function's parameters are the command's, and the options of `run` below.
    """

    def add(ask: Callable[..., Answer | Iterable[Answer]]) -> Callable[..., Any]:
        def run(
            url: Annotated[
                str, typer.Option(envvar="OFFRAMP_URL", help="Where the server is.")
            ] = "http://127.0.0.1:8000",
            model: Annotated[
                str | None,
                typer.Option(envvar="OFFRAMP_MODEL", help="Needed where several are served."),
            ] = None,
            key_file: Annotated[
                Path | None, typer.Option(help="File with the API key. Default: OFFRAMP_KEY.")
            ] = None,
            tls_ca: Annotated[
                Path | None, typer.Option(exists=True, help="PEM file of authorities to trust.")
            ] = None,
            tls_cert: Annotated[
                Path | None, typer.Option(exists=True, help="PEM file: certificate and its key.")
            ] = None,
            as_json: Annotated[
                bool, typer.Option("--json", help="Print what the server answers, for scripts.")
            ] = False,
            **own: Any,
        ) -> None:
            key = read_key(key_file, os.environ.get("OFFRAMP_KEY", ""))
            server = Server(url, key, read_tls(tls_ca, tls_cert))
            answers = ask(RemotePolicy(server, model), **own)
            for answer in [answers] if isinstance(answers, Answer) else answers:
                if as_json:
                    typer.echo(answer.text)
                else:
                    shown.print_lines(show(answer.fields))
                if answer.exit_status:
                    raise typer.Exit(answer.exit_status)

        _, *parameters = inspect.signature(ask).parameters.values()
        *common, _ = inspect.signature(run).parameters.values()
        both = [each.replace(kind=each.KEYWORD_ONLY) for each in (*parameters, *common)]
        run.__signature__ = inspect.Signature(both)  # type: ignore[attr-defined]
        app.command(ask.__name__.strip("_").replace("_", "-"), help=ask.__doc__)(run)
        return ask

    return add
