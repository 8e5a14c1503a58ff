"""Tell a person what is happening to a server, and what went wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from loadtest.http.server_process import ServerProcess

_READY_S = 180.0


@contextmanager
def started(server: ServerProcess, console: Console) -> Iterator[ServerProcess]:
    """Run a server for a block: say when it is ready and that it has stopped."""
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


def complain(console: Console, message: str) -> None:
    """Print what went wrong as it is: messages and logs may look like markup."""
    console.print(message, style="red", markup=False, highlight=False, soft_wrap=True)
