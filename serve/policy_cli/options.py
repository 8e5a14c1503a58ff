"""The options by which a command finds its server, and is let in."""

import os
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from serve.policy_cli.server import Server, read_key, read_tls

Url: TypeAlias = Annotated[str, typer.Option(envvar="OFFRAMP_URL", help="Where the server is.")]
KeyFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="File with the API key. Default: OFFRAMP_KEY.")
]
TlsCa: TypeAlias = Annotated[
    Path | None, typer.Option(exists=True, help="PEM file of authorities to trust.")
]
TlsCert: TypeAlias = Annotated[
    Path | None, typer.Option(exists=True, help="PEM file: certificate and its key.")
]
LOCAL: Final = "http://127.0.0.1:8000"


def server_at(url: str, key_file: Path | None, ca: Path | None, cert: Path | None) -> Server:
    """Return the server that the options name; nothing is sent."""
    key = read_key(key_file, os.environ.get("OFFRAMP_KEY", ""))
    return Server(url, key, read_tls(ca, cert))
