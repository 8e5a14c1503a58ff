"""The `offramp` command: `serve` is here, other packages provide the rest.

They register their commands under the entry-point group `offramp.commands`. So this module imports
none of them, and torch is loaded only by the commands that need it.
"""

import errno
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from pydantic import ValidationError
from typer.core import TyperGroup
from typer.exceptions import TyperException

from serve.access.cli import keys as keys_commands
from serve.commands.model_commands import models
from serve.commands.policy_commands import policy
from serve.commands.rollout_commands import rollout
from serve.commands.terminal import plain
from serve.commands.top import top
from serve.commands.yaml_text import read_document, read_yaml
from serve.config import ServerConfig, ServerLimits
from serve.errors import InvalidRequest, OfframpError
from serve.logs import LogFormat, LogLevel, single_line
from serve.validation import explain
from serve.version import __version__

# Packages that `pip install offramp` does not install, and the extra that does.
EXTRAS = dict.fromkeys(
    ("torch", "transformers", "onnx", "onnx_ir", "onnxscript", "safetensors"), "export"
) | dict.fromkeys(("mapie", "matplotlib", "scipy", "sklearn"), "quality")

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SAID_FULL = re.compile("|".join(map(os.strerror, _FULL)), re.IGNORECASE)

# The commands of the first help page, in the order in which people meet them.
PANELS = {
    "Start": ("adopt", "serve"),
    "Operate": ("policy", "rollout", "models", "top", "keys"),
    "The steps of adopt": ("inspect", "train", "export", "calibrate", "recommend", "evaluate"),
    "Research": ("predict", "pretrain", "elue"),
}
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}

# Options of `serve` beside those that most people use.
of_models = partial(typer.Option, rich_help_panel="Models and hardware")
of_access = partial(typer.Option, rich_help_panel="Access")
of_requests = partial(typer.Option, rich_help_panel="Requests and bounds")
of_logs = partial(typer.Option, rich_help_panel="Logs")


class _InOrder(TyperGroup):
    """Lists commands in the order of the panels."""

    def list_commands(self, ctx: Any) -> list[str]:
        order = list(_PANEL_OF)
        return sorted(self.commands, key=lambda name: order.index(name) if name in order else 99)


app = typer.Typer(
    name="offramp",
    cls=_InOrder,
    help="Serve transformer classifiers that may stop early.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _add(name: str, command: Callable[..., None] | typer.Typer) -> None:
    """Register a command, or a group of commands, in its panel."""
    panel = _PANEL_OF.get(name)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, rich_help_panel=panel)
    else:
        app.command(name, rich_help_panel=panel)(command)


_OWN: dict[str, Callable[..., None] | typer.Typer] = {
    "keys": keys_commands,
    "policy": policy,
    "rollout": rollout,
    "models": models,
    "top": top,
}
for _name, _command in _OWN.items():
    _add(_name, _command)


@app.callback(invoke_without_command=True)
def offramp(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Serve transformer classifiers that may stop early."""
    if version:
        typer.echo(f"offramp {__version__}")
        raise typer.Exit


@app.command(rich_help_panel=_PANEL_OF["serve"])
def serve(
    bundles: Annotated[
        list[Path], typer.Argument(help="Bundles; each is served under its folder's name.")
    ],
    standalone: Annotated[
        bool, typer.Option("--standalone", help="One process, without Ray.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="Address to listen on; :: for IPv6 and IPv4.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 8000,
    keys: Annotated[
        Path | None,
        typer.Option(envvar="OFFRAMP_KEYS", help="File of API keys; `offramp keys new` makes one."),
    ] = None,
    replicas: Annotated[
        int, typer.Option(help="Replicas; more than one needs Ray.", min=1, max=256)
    ] = 1,
    state: Annotated[
        Path | None,
        typer.Option(
            envvar="OFFRAMP_STATE",
            help="Folder that keeps policies and their history for the next start.",
        ),
    ] = None,
    model_repository: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="Folder of bundles that may be loaded while it runs."
        ),
    ] = None,
    precision: Annotated[
        Literal["auto", "fp32", "int8", "fp16"],
        of_models(help="auto: fp16 on CUDA, int8 where the processor has VNNI."),
    ] = "auto",
    device: Annotated[
        Literal["auto", "cpu", "cuda"], of_models(help="auto: CUDA where it can be had.")
    ] = "auto",
    active_exits: Annotated[
        str | None,
        of_models(
            help="Exit layers to use, such as 2,4,6; auto: those that take the least time here "
            "under the default rule. Default: all."
        ),
    ] = None,
    gpu_memory_gb: Annotated[
        float | None,
        of_models(
            help="Most memory that a replica's models take on a GPU; CUDA adds to it.", min=0.1
        ),
    ] = None,
    answer_cache: Annotated[
        float | None,
        of_models(
            "--answer-cache",
            metavar="MB",
            help="Keep so much of each model's answers, and give them again to the same texts of "
            "the same key. Default: none.",
            min=0.01,
        ),
    ] = None,
    gpus_per_replica: Annotated[
        float | None,
        of_models(help="0.5 for two replicas on each GPU. Default: one GPU each.", min=0.01, max=1),
    ] = None,
    no_auth: Annotated[
        bool,
        of_access(
            "--no-auth",
            envvar="OFFRAMP_NO_AUTH",
            help="Let every client that reaches the port do everything.",
        ),
    ] = False,
    open_metrics: Annotated[
        bool,
        of_access("--open-metrics", envvar="OFFRAMP_OPEN_METRICS", help="/metrics needs no key."),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        of_access(
            help="Name that clients know the server by, *.example.com, or * for any; several "
            "times. Default: loopback names on loopback, any elsewhere."
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        of_access(
            help="Origin whose web pages may ask, such as https://app.example.com, with keys also "
            "* for all; several times."
        ),
    ] = None,
    trusted_proxies: Annotated[
        list[str] | None,
        of_access(
            help="Proxies whose word on the client's address is trusted, such as 10.0.0.0/8,::1."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, of_access(help="PEM file: certificate and its chain; HTTPS then.")
    ] = None,
    tls_key: Annotated[Path | None, of_access(help="PEM file: the certificate's key.")] = None,
    tls_client_ca: Annotated[
        Path | None,
        of_access(help="PEM file of CAs; clients must show a certificate of one of them."),
    ] = None,
    grpc_port: Annotated[
        int | None,
        of_requests(
            help="Port for gRPC, 0 for any that is free. Default: no gRPC.", min=0, max=65535
        ),
    ] = None,
    dialects: Annotated[
        str, of_requests(help="Wire formats, such as v1,hf; docs/clients.md lists them.")
    ] = "all",
    limits: Annotated[
        str | None,
        of_requests(
            help="File of bounds on requests, queue, batches and connections, or JSON in braces; "
            "docs/operations.md lists them."
        ),
    ] = None,
    log_file: Annotated[
        Path | None, of_logs(help="File for log lines of all replicas. Default: stderr.")
    ] = None,
    log_format: Annotated[LogFormat, of_logs(help="How log lines look.")] = "text",
    log_level: Annotated[LogLevel, of_logs(help="Level of the least important lines.")] = "info",
    access_log: Annotated[
        bool, of_logs("--access-log", help="A log line for every request.")
    ] = False,
) -> None:
    """Serve bundles over HTTP until Ctrl-C or SIGTERM."""
    from serve.launch import Launch, launch

    config = ServerConfig(
        bundles=[str(folder) for folder in bundles],
        model_repository=model_repository and model_repository.resolve(),
        precision=precision,
        device=device,
        gpu_memory_gb=gpu_memory_gb,
        answer_cache_mb=answer_cache,
        keys=keys,
        no_auth=no_auth,
        open_metrics=open_metrics,
        allowed_hosts=allowed_host or [],
        cors_origins=cors_origin or [],
        trusted_proxies=[part for given in trusted_proxies or [] for part in given.split(",")],
        state=state,
        log_file=log_file,
        log_format=log_format,
        log_level=log_level,
        access_log=access_log,
        dialects=[name.strip() for name in dialects.split(",")],
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        **(_read_limits(limits) if limits else {}),
    )
    launch(
        Launch(config, host, port, grpc_port, replicas, gpus_per_replica, active_exits), standalone
    )


def _read_limits(given: str) -> dict[str, Any]:
    """Return the fields of `ServerLimits` that a file, or JSON itself, sets."""
    if given.lstrip().startswith("{"):
        found = read_yaml(given, "--limits")
    else:
        found = read_document(Path(given))
    try:
        return ServerLimits.model_validate(found).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise InvalidRequest(f"--limits: {explain(error)}") from None


def main() -> None:
    """Run the command line; expected errors become one line on stderr, mostly with status 2."""
    _prepare_streams()
    # SIGTERM then ends a command as Ctrl-C does: files that are half written are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Takes a second or two, in which Ctrl-C is no traceback either.
        for entry in entry_points(group="offramp.commands"):
            _add(entry.name, entry.load())
        # What is wrong with the arguments is printed in colour, or raised.
        sys.exit(app(standalone_mode=not _speaks_json()))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        message = expected_message(error)
        if message is not None:
            _fail(message, status=getattr(error, "exit_status", 2))
        if not _speaks_json():
            raise
        _fail("the command has failed", error, status=1)


def _prepare_streams() -> None:
    """Let no command's outcome depend on what the terminal can show.

    Python has no stream at all where the shell has closed it (`>&-`).
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r+", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def expected_message(error: Exception) -> str | None:
    """Return what to say of an error that is no fault of the program's; None for others."""
    if isinstance(error, OfframpError):
        return str(error)
    if full := _full_disk(error):
        kept = " ".join(getattr(error, "__notes__", ())) or "what was there before is kept"
        return f"{full}; {kept}"
    if isinstance(error, TyperException):
        return error.format_message()
    if isinstance(error, OSError) and error.filename is not None:
        # Mostly a file of --out or --json: no such folder, no permission.
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return f"this command needs {error.name}; pip install 'offramp[{EXTRAS[error.name]}]'"
    return None


def _full_disk(error: BaseException | None) -> str | None:
    """Return what to say of a file that could not be written whole; None of other errors.

    Libraries in other languages tell it by words alone, and PyTorch by the error behind its own.
    """
    while error:
        if isinstance(error, OSError) and error.errno in _FULL:
            where = f"{error.filename} cannot be written: " if error.filename else ""
            return f"{where}the disk is full ({error.strerror})"
        if found := _SAID_FULL.search(str(error)):
            return f"the disk is full ({found[0]})"
        error = error.__cause__ or error.__context__
    return None


def _speaks_json() -> bool:
    """Tell whether this is `serve --log-format json`, also if other arguments are wrong."""
    given = " ".join([*sys.argv[1:], ""]).replace("--log-format=", "--log-format ")
    return given.startswith("serve ") and "--log-format json " in given


def _fail(message: str, cause: Exception | None = None, status: int = 2) -> NoReturn:
    line = "\n".join(map(plain, f"offramp: {message}".split("\n")))
    if _speaks_json():
        line = single_line("json", logging.ERROR, message, cause)
    with suppress(OSError):
        typer.echo(line, err=True)
    try:
        sys.stdout.flush()
    except OSError:  # Python would try once more at its end, and end with a status of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
