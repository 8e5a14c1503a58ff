"""`offramp keys`: make, list and revoke API keys."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from serve.access.keys import Key, KeyLimits, new_key, read_keys, revoke_key
from serve.errors import InvalidRequest
from serve.validation import explain

keys = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)

KeysFile = Annotated[Path, typer.Option("--file", help="The file of keys.")]
DEFAULT_FILE = Path("keys.json")
_COLUMNS = ("NAME", "SCOPES", "PRIORITY", "MADE", "LIMITS")


@keys.command()
def new(
    name: Annotated[str, typer.Argument(help="Whose key it is; appears in logs.")],
    file: KeysFile = DEFAULT_FILE,
    scope: Annotated[
        list[str],
        typer.Option(
            help="What it may do: classify; read models, metrics and policies; or admin, which is "
            "all of it and changing policies. May be given several times."
        ),
    ] = ["classify"],  # noqa: B006 - typer copies it
    priority: Annotated[
        str,
        typer.Option(help="The best priority that its requests may ask for: low, normal or high."),
    ] = "normal",
    rows_per_s: Annotated[int | None, typer.Option(help="Most texts a second.", min=1)] = None,
    tokens_per_s: Annotated[int | None, typer.Option(help="Most tokens a second.", min=1)] = None,
    in_flight: Annotated[int | None, typer.Option(help="Most requests at once.", min=1)] = None,
    max_text_chars: Annotated[
        int | None, typer.Option(help="Most characters of a text.", min=1)
    ] = None,
    model: Annotated[
        list[str], typer.Option(help="A model that it may ask, and no others. Several times.")
    ] = [],  # noqa: B006
    profile: Annotated[
        list[str],
        typer.Option(
            help="A profile that its requests may have, and no other rule or setting. Several "
            "times; the first one is that of requests that name none."
        ),
    ] = [],  # noqa: B006
    expires: Annotated[
        str | None,
        typer.Option(
            help="When the key ends: after a time such as 90d, 12h or 30m, or at a date (UTC)."
        ),
    ] = None,
) -> None:
    """Make a key and print it; only its hash is kept."""
    limits = KeyLimits(
        rows_per_s=rows_per_s,
        tokens_per_s=tokens_per_s,
        in_flight=in_flight,
        max_text_chars=max_text_chars,
    )
    fields = {"name": name, "sha256": "0" * 64, "scopes": scope, "priority": priority}
    ends = _end(expires) if expires else None
    try:
        key = Key.model_validate(
            {**fields, "limits": limits, "expires": ends, "models": model, "profiles": profile}
        )
    except ValidationError as error:
        raise InvalidRequest(explain(error)) from None
    typer.echo(new_key(key, file))
    typer.echo("It is shown this once. The file holds its hash.", err=True)


@keys.command("list")
def list_keys(file: KeysFile = DEFAULT_FILE) -> None:
    """List the keys, with tabs between the columns."""
    found = read_keys(file)
    typer.echo("\t".join(_COLUMNS))
    for key in found:
        limits = [
            f"{name}={value}" for name, value in key.limits.model_dump(exclude_none=True).items()
        ]
        for name, bound in (("models", key.models), ("profiles", key.profiles)):
            limits += [f"{name}={','.join(bound)}"] if bound else []
        if key.expires:
            state = "expired" if key.expired else "expires"
            limits.append(f"{state}={key.expires:%Y-%m-%dT%H:%MZ}")
        made = str(key.created or "")
        row = [key.name, ",".join(key.scopes), key.priority, made, " ".join(limits)]
        typer.echo("\t".join(row).rstrip())


@keys.command()
def revoke(
    name: Annotated[str, typer.Argument(help="Name of the key.")], file: KeysFile = DEFAULT_FILE
) -> None:
    """Remove a key; a running server refuses it within seconds."""
    revoke_key(name, file)


_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


def _end(text: str) -> datetime:
    """Return when a key ends.

    Raises:
        InvalidRequest: the text says no time, or one that is over.
    """
    now = datetime.now(UTC)
    try:
        if found := re.fullmatch(r"([0-9]{1,6})([dhm])", text):
            end = now + timedelta(**{_UNITS[found[2]]: int(found[1])})
        else:
            end = datetime.fromisoformat(text)
            end = end if end.tzinfo else end.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"--expires: {text[:40]!r} is neither a time such as 90d, 12h or 30m nor a date such "
            "as 2030-01-31 or 2030-01-31T12:00"
        ) from None
    if end <= now:
        raise InvalidRequest(f"--expires: {text[:40]} is over already; it is {now:%Y-%m-%dT%H:%MZ}")
    return end.replace(microsecond=0)
