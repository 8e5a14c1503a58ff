"""Editing the live policy in an editor."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import typer

from serve.commands import terminal
from serve.commands.http_client import CallFailed, Json
from serve.commands.remote import Remote
from serve.commands.yaml_text import read_document, write_yaml
from serve.errors import InvalidRequest

_HEAD = """\
# The policy of {model}, version {version}. Save and leave the editor to see what a change would do;
# you are asked before anything changes. A file that is left as it is changes nothing.
"""


def edit_policy(remote: Remote, why: str | None, sure: bool) -> Json:
    """Let an editor change the live policy, dry-run it, ask unless sure, and put it.

    What was written stays in its file until the server has it.
    """
    live = remote.get()
    handle, name = tempfile.mkstemp(prefix="offramp-policy-", suffix=".yaml")
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        opened.write(_HEAD.format(**live) + write_yaml(live["policy"]))
    file = Path(name)
    begun = file.read_bytes()
    try:
        answer = _edit(remote, file, live, why, sure)
    except BaseException:
        if file.exists() and file.read_bytes() != begun:
            typer.echo(f"What you have written is kept: offramp policy diff {file}", err=True)
        else:
            file.unlink(missing_ok=True)
        raise
    file.unlink()
    return answer


def _edit(remote: Remote, file: Path, live: Json, why: str | None, sure: bool) -> Json:
    while True:
        _run_editor(file)
        written, fit = _tried(remote, file, live["policy"])
        if written == live["policy"]:
            typer.echo("Nothing was changed.", err=True)
            return live
        reply = _reply(fit, sure)
        if reply == "y":
            return remote.send("PUT", policy=written, version=live["version"], why=why)
        if reply != "e":
            raise CallFailed("nothing was changed", 1)


def _tried(remote: Remote, file: Path, live: Any) -> tuple[Any, bool]:
    """Print what would become of what was written; return it, and whether it can be put."""
    written = None
    try:
        written = read_document(file)
        if written == live:
            return written, True
        answer = remote.send("POST", "/dry-run", policy=written)
    except (CallFailed, InvalidRequest) as error:
        if isinstance(error, CallFailed) and error.exit_status != 1:
            raise
        typer.echo(f"offramp: {error}", err=True)
        return written, False
    terminal.print_lines(terminal.dry_run(answer), to_stderr=True)
    return written, not answer.get("problem")


def _reply(fit: bool, sure: bool) -> str:
    if sure:
        return "y" if fit else "n"
    typer.echo(f"{'[y]es, ' * fit}[e]dit again or [n]o change? ", nl=False, err=True)
    reply = sys.stdin.readline().strip().lower()[:1]
    return reply if fit or reply == "e" else "n"


def _run_editor(file: Path) -> None:
    """Run the editor until it ends; Ctrl-C is the editor's."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        ended = subprocess.run([*shlex.split(named), str(file)], check=False)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"the editor {named!r} cannot be run ({error}); set EDITOR") from None
    finally:
        signal.signal(signal.SIGINT, before)
    if ended.returncode:
        raise CallFailed(
            f"{named} has ended with status {ended.returncode}; nothing was changed", 1
        )
