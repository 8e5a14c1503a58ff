"""API keys: a file holds their hashes, and only the client holds the key itself.

A key is 256 random bits, so a plain SHA-256 cannot be reversed by guessing, and a slow hash would
only slow down requests.
"""

import fcntl
import hashlib
import os
import secrets
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    StringConstraints,
    ValidationError,
    model_validator,
)

from serve.bounded_file import UnfitFile, read_file
from serve.errors import OfframpError
from serve.validation import explain

Scope = Literal["classify", "read", "admin"]
Unit = Literal["texts", "tokens"]

PREFIX = "offramp_"
# Some 20,000 keys.
_MOST_BYTES = 4 << 20
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
# Names of models and profiles.
Names = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=255)], ...],
    Field(max_length=64),
]


def _in_utc(time: datetime) -> datetime:
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


class InvalidKeys(OfframpError):
    """The file of keys cannot be used, or a change of it makes no sense."""


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KeyLimits(_Document):
    """What one key may take from the whole server; None is no limit.

    Attributes:
        rows_per_s: texts a second.
        tokens_per_s: tokens a second.
        in_flight: requests that are being answered at once.
        max_text_chars: characters of the longest text.
    """

    rows_per_s: PositiveInt | None = None
    tokens_per_s: PositiveInt | None = None
    in_flight: PositiveInt | None = None
    max_text_chars: PositiveInt | None = None

    @cached_property
    def rates(self) -> Mapping[Unit, int]:
        """What is limited by the second, and how much of it a second brings."""
        rates: dict[Unit, int | None] = {"texts": self.rows_per_s, "tokens": self.tokens_per_s}
        return {unit: per_s for unit, per_s in rates.items() if per_s is not None}


class Key(_Document):
    """One key, without its secret.

    Attributes:
        name: appears in logs.
        sha256: hash of the key, in hexadecimal.
        scopes: what it may do; `admin` includes the others.
        priority: the best that its requests may ask for.
        limits: what it may take.
        created: day on which it was made.
        expires: when it ends, a bare date at its beginning in UTC; None for never.
        models: models that its requests may ask; empty for all.
        profiles: that its requests may have, of which the first is that of requests without
            `exit`; empty for all, and for rules and targets.
    """

    name: Name
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    scopes: tuple[Scope, ...] = Field(min_length=1)
    priority: Literal["low", "normal", "high"] = "normal"
    limits: KeyLimits = KeyLimits()
    created: date | None = None
    expires: Annotated[datetime, AfterValidator(_in_utc)] | None = None
    models: Names = ()
    profiles: Names = ()

    @model_validator(mode="after")
    def _check_bound(self) -> Self:
        if (self.models or self.profiles) and self.scopes != ("classify",):
            raise ValueError(
                "a key that is bound to models or profiles has the scope classify alone; make "
                "another key to read or to change policies"
            )
        return self

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return self.expires is not None and datetime.now(UTC) >= self.expires

    def may(self, scope: Scope) -> bool:
        """Tell whether the key has a scope."""
        return scope in self.scopes or "admin" in self.scopes


class KeyFile(_Document):
    """The file of keys."""

    keys: tuple[Key, ...] = ()


def read_keys(path: Path) -> tuple[Key, ...]:
    """Return the keys of a file.

    Raises:
        InvalidKeys: the file cannot be read, or two keys share a name or a hash.
    """
    try:
        keys = KeyFile.model_validate_json(read_file(path, _MOST_BYTES)).keys
        if path.stat().st_mode & stat.S_IWOTH:
            raise InvalidKeys(f"{path}: every user of the machine may write to it; `chmod o-w` it")
    except UnfitFile as error:
        raise InvalidKeys(f"{path} {error}") from None
    except OSError as error:
        raise InvalidKeys(f"{path}: {error.strerror}; make a key with `offramp keys new`") from None
    except ValidationError as error:
        raise InvalidKeys(f"{path} is no file of keys: {explain(error)}") from None
    for values in ([key.name for key in keys], [key.sha256 for key in keys]):
        value, count = Counter(values).most_common(1)[0] if values else ("", 0)
        if count > 1:
            raise InvalidKeys(f"{path}: {value} stands for two keys")
    return keys


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Inside the block no other command changes the file, or others in its folder.

    Raises:
        InvalidKeys: there is no such folder.
    """
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY)
    except OSError as error:
        raise InvalidKeys(f"{path.parent}: {error.strerror}") from None
    except RuntimeError:
        raise InvalidKeys(f"{path} is a link to itself; remove it") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def write_keys(path: Path, keys: Sequence[Key]) -> None:
    """Write a file of keys, whole or not at all; where the path is a link, the file behind it.

    A new file may be read by this user only; one that exists keeps its mode and its owner.

    Raises:
        InvalidKeys: this user may not keep the owner, so that the server could not read the file.
    """
    path = path.resolve()
    before = path.stat() if path.exists() else None
    text = KeyFile(keys=tuple(keys)).model_dump_json(indent=2, exclude_none=True)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")
        if before:
            try:
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
            except OSError:
                part.unlink()
                raise InvalidKeys(
                    f"{path} belongs to another user or group, {before.st_uid}:{before.st_gid}, "
                    "and the server could not read what you write; run this as that user"
                ) from None
            os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
    part.replace(path)


def new_key(key: Key, path: Path) -> str:
    """Add a key to a file, which is made if there is none, and return the key's secret.

    The key's `sha256` and `created` are replaced.

    Raises:
        InvalidKeys: there is a key of this name.
    """
    with changing(path):
        keys = read_keys(path) if path.exists() else ()
        if any(other.name == key.name for other in keys):
            raise InvalidKeys(
                f"{path} has a key {key.name} already; revoke it first, or choose a name"
            )
        secret = PREFIX + secrets.token_urlsafe(32)
        made = {"sha256": hash_of(secret), "created": datetime.now(UTC).date()}
        write_keys(path, [*keys, key.model_copy(update=made)])
    return secret


def revoke_key(name: str, path: Path) -> None:
    """Remove a key from a file.

    Raises:
        InvalidKeys: there is no such key.
    """
    with changing(path):
        keys = read_keys(path)
        left = [key for key in keys if key.name != name]
        if len(left) == len(keys):
            names = ", ".join(key.name for key in keys) or "none"
            raise InvalidKeys(f"{path} has no key {name}; it has {names}")
        write_keys(path, left)


def hash_of(secret: str) -> str:
    """Return the hash that a key is known by."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
