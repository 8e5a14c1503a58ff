"""The `offramp` command: `serve` is here, other packages provide the rest.

They register their commands under the entry-point group `offramp.commands`. So this module imports
none of them, and torch is loaded only by the commands that need it.
"""

import logging
import signal
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
from typer.exceptions import TyperException

from serve.access.cli import keys as keys_commands
from serve.config import ConnectionLimits, ServerConfig
from serve.engine.admission import QueueLimits
from serve.errors import OfframpError
from serve.logs import LogFormat, LogLevel, single_line
from serve.policy_cli.cli import policy as policy_commands
from serve.policy_cli.models import models as models_commands
from serve.policy_cli.rollout import rollout as rollout_commands
from serve.top.cli import top
from serve.version import __version__

# Packages that `pip install offramp` does not install, and the extra that does.
EXTRAS = dict.fromkeys(
    ("torch", "transformers", "onnx", "onnx_ir", "onnxscript", "safetensors"), "export"
) | dict.fromkeys(("mapie", "matplotlib", "scipy", "sklearn"), "quality")

LIMITS, QUEUE = ConnectionLimits(), QueueLimits()

app = typer.Typer(
    name="offramp",
    help="Serve transformer classifiers that may stop early.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(keys_commands, name="keys")
app.add_typer(policy_commands, name="policy")
app.add_typer(rollout_commands, name="rollout")
app.add_typer(models_commands, name="models")
app.command()(top)


@app.callback(invoke_without_command=True)
def offramp(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Serve transformer classifiers that may stop early."""
    if version:
        typer.echo(f"offramp {__version__}")
        raise typer.Exit


@app.command()
def serve(
    bundles: Annotated[
        list[Path], typer.Argument(help="Bundles; each is served under its folder's name.")
    ],
    standalone: Annotated[
        bool, typer.Option(help="One process, without Ray.", show_default="Ray Serve")
    ] = False,
    model_repository: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Folder of bundles that may be loaded while the server runs. None but BUNDLES if "
            "absent.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; :: for IPv6 and IPv4.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 8000,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            help="Port for gRPC, 0 for any that is free. None if absent.", min=0, max=65535
        ),
    ] = None,
    replicas: Annotated[
        int, typer.Option(help="Replicas; more than one needs Ray.", min=1, max=256)
    ] = 1,
    precision: Annotated[
        Literal["auto", "fp32", "int8", "fp16"],
        typer.Option(help="Variant; auto is fp16 on CUDA, int8 where the processor has VNNI."),
    ] = "auto",
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="auto is CUDA where it can be had.")
    ] = "auto",
    gpu_memory_gb: Annotated[
        float | None,
        typer.Option(help="Most that a replica's models take of a GPU; CUDA adds to it.", min=0.1),
    ] = None,
    gpus_per_replica: Annotated[
        float | None,
        typer.Option(
            help="Of a GPU, 0.5 for two replicas on each. One each if absent.", min=0.01, max=1
        ),
    ] = None,
    max_batch_rows: Annotated[
        int | None,
        typer.Option(
            help="Rows in a batch. If absent, 64, and 512 on CUDA.",
            min=1,
            max=QUEUE.max_rows,
        ),
    ] = None,
    max_batch_tokens: Annotated[
        int | None,
        typer.Option(
            help="Rows times the longest row in a batch. If absent, 2048, and 16384 on CUDA.",
            min=1,
            max=QUEUE.max_tokens,
        ),
    ] = None,
    active_exits: Annotated[
        str | None,
        typer.Option(
            help="Exit layers to use, such as 2,4,6, or auto: those under which the default rule "
            "takes the least time here. All if absent."
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(envvar="OFFRAMP_KEYS", help="File of API keys; `offramp keys new` makes one."),
    ] = None,
    no_auth: Annotated[
        bool,
        typer.Option(
            "--no-auth",
            envvar="OFFRAMP_NO_AUTH",
            help="Let every client that reaches the port do all.",
        ),
    ] = False,
    open_metrics: Annotated[
        bool,
        typer.Option(
            "--open-metrics", envvar="OFFRAMP_OPEN_METRICS", help="/metrics needs no key."
        ),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name that clients know the server by, *.example.com, or * for any; several "
            "times. Default: loopback names on loopback, any elsewhere."
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin whose web pages may ask, such as https://app.example.com; several times. "
            "With keys also * for all."
        ),
    ] = None,
    trusted_proxies: Annotated[
        list[str] | None,
        typer.Option(
            help="Addresses and networks of proxies that are believed who the client is, such as "
            "10.0.0.0/8,::1; several times or comma separated. Default: none."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder that policies, their history and counts of audits are kept in, for the "
            "next start. None are kept if absent."
        ),
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option(help="File that log lines of all replicas are added to. Default: stderr."),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="How log lines look.")] = "text",
    log_level: Annotated[LogLevel, typer.Option(help="Of the least important lines.")] = "info",
    access_log: Annotated[
        bool, typer.Option("--access-log", help="A log line for every request.")
    ] = False,
    dialects: Annotated[
        str,
        typer.Option(help="Wire formats to speak, such as v1,hf; docs/clients.md lists them."),
    ] = "all",
    tokenizer_threads: Annotated[
        int, typer.Option(help="Threads of a replica that tokenize long texts.", min=1, max=256)
    ] = 2,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM file: certificate and its chain; HTTPS then.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file: the certificate's key.")] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(help="PEM file of CAs; clients must show a certificate of one of them."),
    ] = None,
    head_timeout: Annotated[
        float, typer.Option(help="Seconds for a request's head, or a TLS handshake.", min=0.1)
    ] = LIMITS.head_timeout_s,
    idle_timeout: Annotated[
        float, typer.Option(help="Seconds that a kept connection may wait.", min=0.1)
    ] = LIMITS.idle_timeout_s,
    body_timeout: Annotated[
        float, typer.Option(help="Seconds for a request's whole body.", min=0.1)
    ] = LIMITS.body_timeout_s,
    min_body_rate: Annotated[
        int, typer.Option(help="Bytes/s of a body that takes longer than 5 s.", min=1)
    ] = LIMITS.min_body_rate,
    max_head_bytes: Annotated[
        int, typer.Option(help="Largest request line with headers.", min=1024)
    ] = LIMITS.max_head_bytes,
    max_connections: Annotated[
        int, typer.Option(help="Open at once, per replica; the longest idle one makes room.", min=1)
    ] = LIMITS.max_connections,
) -> None:
    """Serve bundles over HTTP until Ctrl-C or SIGTERM."""
    from serve.launch import Launch, launch

    config = ServerConfig(
        bundles=[str(folder) for folder in bundles],
        model_repository=model_repository and model_repository.resolve(),
        precision=precision,
        device=device,
        gpu_memory_gb=gpu_memory_gb,
        max_batch_rows=max_batch_rows,
        max_batch_tokens=max_batch_tokens,
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
        tokenizer_threads=tokenizer_threads,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        connections=ConnectionLimits(
            head_timeout_s=head_timeout,
            idle_timeout_s=idle_timeout,
            body_timeout_s=body_timeout,
            min_body_rate=min_body_rate,
            max_head_bytes=max_head_bytes,
            max_connections=max_connections,
        ),
    )
    launch(
        Launch(config, host, port, grpc_port, replicas, gpus_per_replica, active_exits), standalone
    )


def main() -> None:
    """Run the command line; expected errors become one line on stderr, mostly with status 2."""
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


def _add(name: str, command: Callable[..., None] | typer.Typer) -> None:
    """Register a command of another package, or a group of commands."""
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def expected_message(error: Exception) -> str | None:
    """Return what to say of an error that is no fault of the program's; None for others."""
    if isinstance(error, OfframpError):
        return str(error)
    if isinstance(error, TyperException):
        return error.format_message()
    if isinstance(error, OSError) and error.filename is not None:
        # Mostly a file of --out or --json: no such folder, no permission, a full disk.
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return f"this command needs {error.name}; pip install 'offramp[{EXTRAS[error.name]}]'"
    return None


def _speaks_json() -> bool:
    """Tell whether this is `serve --log-format json`, also if other arguments are wrong."""
    given = " ".join([*sys.argv[1:], ""]).replace("--log-format=", "--log-format ")
    return given.startswith("serve ") and "--log-format json " in given


def _fail(message: str, cause: Exception | None = None, status: int = 2) -> NoReturn:
    line = f"offramp: {message}"
    if _speaks_json():
        line = single_line("json", logging.ERROR, message, cause)
    typer.echo(line, err=True)
    sys.exit(status)
