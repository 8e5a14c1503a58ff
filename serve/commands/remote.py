"""What every command about a running server has: its options, its server, its way to print."""

import json
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeAlias
from urllib.parse import quote

import typer
from pydantic import TypeAdapter, ValidationError
from rich.text import Text
from typer.core import TyperCommand

from serve.commands.http_client import LOCAL, CallFailed, Json, KeyFile, Server, TlsCa, TlsCert, Url
from serve.commands.terminal import print_lines
from serve.commands.yaml_text import read_document
from serve.errors import InvalidRequest
from serve.policy.difference import changes
from serve.policy.document import Policy, WholePolicy
from serve.validation import explain

ModelName: TypeAlias = Annotated[
    str | None, typer.Option(envvar="OFFRAMP_MODEL", help="Needed where several are served.")
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print what the server answers, for scripts.")
]
Why: TypeAlias = Annotated[str | None, typer.Option(help="Reason, for the history.")]


class Remote:
    """A running server, and the policy of one of its models.

    Attributes:
        server: where the model is.
    """

    def __init__(
        self,
        url: Url = LOCAL,
        model: ModelName = None,
        key_file: KeyFile = None,
        tls_ca: TlsCa = None,
        tls_cert: TlsCert = None,
        as_json: AsJson = False,
    ) -> None:
        """Take the options; nothing is sent. No model stands for the only one that is served."""
        self.server = Server.at(url, key_file, tls_ca, tls_cert)
        self._model, self._as_json = model, as_json

    def show(self, fields: Json, show: Callable[[Json], Iterator[Text]]) -> None:
        """Print an answer as lines, or as JSON.

        Raises:
            CallFailed: it cannot be printed, which says nothing of what the server has done.
        """
        try:
            if self._as_json:
                typer.echo(json.dumps(fields, separators=(",", ":")))
            else:
                print_lines(show(fields))
            sys.stdout.flush()
        except OSError as error:
            raise CallFailed(
                f"it is done, but the answer cannot be printed: {error.strerror}", 5
            ) from None

    @cached_property
    def path(self) -> str:
        """The path of the policy's routes."""
        return f"/v1/models/{quoted(self._model or self._only_model())}/policy"

    def get(self, tail: str = "") -> Json:
        """Ask for what stands below the policy's path."""
        return self.server.call("GET", self.path + tail)

    def send(self, method: str, tail: str = "", **body: Any) -> Json:
        """Send a call; of the body, what is not None."""
        return self.server.call(method, self.path + tail, body)

    def version(self) -> int:
        """Return the version of the policy that is live."""
        return int(self.get()["version"])

    def changes(self, old: str, new: str) -> Json:
        """Return what two policies differ in: numbers of versions, files, or "" for the live one.

        Both are read as the server reads them: a default that is written out is no difference.
        """
        return dict(changes(self._policy(old), self._policy(new)))

    def _policy(self, named: str) -> Policy:
        if named and not named.isdecimal():
            where, document = f"file {named}", read_document(Path(named))
        else:
            where = f"version {named}" if named else "the live policy"
            document = self.get(f"/history/{named}" if named else "")["policy"]
        try:
            return _WHOLE.validate_json(json.dumps(document))
        except ValidationError as error:
            raise InvalidRequest(f"{where}: {explain(error)}") from None

    def _only_model(self) -> str:
        names = [model["id"] for model in self.server.call("GET", "/v1/models")["data"]]
        if len(names) == 1:
            return str(names[0])
        raise InvalidRequest(
            f"several models are served; add --model and one of {', '.join(names)}"
        )


def quoted(name: str) -> str:
    """Return the name of a model or an alias as a part of a path.

    Raises:
        InvalidRequest: a path would mean something else.
    """
    if "/" in name or name in ("", ".", ".."):
        raise InvalidRequest(f"{name!r}: must be the name of a model or an alias, not a path")
    return quote(name, safe="")


_WHOLE: TypeAdapter[Policy] = TypeAdapter(WholePolicy)


def _options() -> list[Any]:
    """Return the options of `Remote` as typer makes them."""
    app = typer.Typer(add_completion=False)
    app.command()(Remote)
    return typer.main.get_command(app).params


# What reading JSON raises that has not the fields of Offramp's.
_WRONG_SHAPES: Final = (
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
)


class PolicyCommand(TyperCommand):
    """A command with the options of `Remote` behind its own; `ctx.obj` is what they mean."""

    shared: ClassVar = _options()

    def __init__(self, *args: Any, params: list[Any], **settings: Any) -> None:
        super().__init__(*args, params=[*params, *self.shared], **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run the command's function.

        Raises:
            CallFailed: the server's JSON has not the fields that Offramp's has.
        """
        ctx.obj = remote = Remote(**{each.name: ctx.params.pop(each.name) for each in self.shared})
        try:
            return super().invoke(ctx)
        except _WRONG_SHAPES as error:
            raise remote.server.stranger() from error


class ServerCommand(PolicyCommand):
    """The same for commands that are about no single model."""

    shared: ClassVar = [each for each in PolicyCommand.shared if each.name != "model"]
