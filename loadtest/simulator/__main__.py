"""`python -m loadtest.simulator`: the same as `offramp simulate`."""

import sys

import typer

from loadtest.simulator.cli import simulate
from serve.errors import OfframpError


def main() -> None:
    """Run the command; what is wrong with the options is said in one line."""
    app = typer.Typer(add_completion=False)
    app.command()(simulate)
    try:
        app()
    except OfframpError as error:
        print(f"offramp: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
