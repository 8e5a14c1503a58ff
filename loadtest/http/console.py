"""Run a command's server and say on the console what happens and what went wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

from loadtest.http.interruption import interrupt_on_signals, interrupted
from loadtest.http.server_process import ServerProcess
from serve.cli import expected_message

_READY_S = 180.0
_INTERRUPTED = 130


def run_command(name: str, console: Console, work: Callable[[], int]) -> int:
    """Run a command and return its exit status; an expected error is printed, with status 1.

    Args:
        name: of the command, for the message of a failure.
        console: where to print.
        work: the command; returns the exit status.
    """
    interrupt_on_signals()
    try:
        return work()
    except KeyboardInterrupt:
        pass
    except Exception as error:
        if not interrupted():
            message = expected_message(error)
            if message is None:
                raise
            print_error(console, f"the {name} failed: {message}")
            return 1
    console.print("interrupted")
    return _INTERRUPTED


def run_typed(name: str, command: Callable[..., Any]) -> int:
    """Run a command whose options are the function's parameters, as `run_command` does."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    return run_command(name, Console(stderr=True), app)


@contextmanager
def started(server: ServerProcess, console: Console) -> Iterator[ServerProcess]:
    """Run a server for a block; print when it is ready and when it has stopped."""
    console.print(f"starting Offramp on {server.url}", highlight=False)
    with server:
        with console.status("waiting for the server") as status:
            took_s = server.wait_until_ready(
                _READY_S, lambda seconds: status.update(f"waiting for the server, {seconds:.0f} s")
            )
        console.print(f"ready after {took_s:.1f} s", highlight=False)
        yield server
        with console.status("stopping the server"):
            server.stop()
        console.print("the server has stopped", highlight=False)


def print_text(console: Console, text: str) -> None:
    """Print Markdown or a log as it is, without colours and line breaks of Rich."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_error(console: Console, message: str) -> None:
    """Print a message in red, as it is."""
    console.print(message, style="red", markup=False, highlight=False, soft_wrap=True)
