"""Decides for each request who sends it and whether it may pass."""

import logging
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_network
from pathlib import Path
from typing import Final, Literal

from serve.access.keys import InvalidKeys, Key, Scope, Unit, hash_of, read_keys
from serve.access.usage import BODY_BYTES, REFUSED_TOKEN_BYTES, Usage
from serve.engine.row import Priority
from serve.errors import Forbidden, RateLimited, TextTooLong, Unauthorized

log = logging.getLogger(__name__)

# What a key must have: a scope, or any will do.
Needed = Scope | Literal["any"]

# The file of keys is looked at so often while requests come.
_RELOAD_EVERY_S = 1.0
# Longer keys are not hashed.
MAX_KEY_CHARS = 512

_NOT_COUNTED: Final = nullcontext()
# A request that ends with one of these statuses has had its body read in vain, by its client's
# fault. A client that is too slow (408), leaves (499) or sets a deadline that cannot be met (504)
# is counted as long as no rows have been queued.
REFUSALS: Final = frozenset({400, 403, 404, 408, 409, 412, 413, 415, 422, 428, 499, 504})

HOW = "send the header `Authorization: Bearer KEY` or `X-API-Key: KEY`"


@dataclass(slots=True, eq=False)
class Client:
    """Who sends a request.

    Attributes:
        identity: clients of equal identity share what one client may take: the key's name, or
            the address of a client without a key; of an IPv6 address its first 64 bits, because
            one network owns the rest.
        key: None where none is needed.
        usage: counts what the client takes; None where nothing is counted.
        address: the client's address, for logs.
    """

    identity: str
    key: Key | None = None
    usage: Usage | None = None
    address: str = ""
    _taken: dict[Unit, int] = field(default_factory=dict)  # by this request
    _unqueued: int = 0  # tokens of this request

    @classmethod
    def at(cls, address: str, usage: Usage | None = None) -> "Client":
        """Return the client at an address, without a key."""
        identity = _network(address) if ":" in address else address
        return cls(identity, usage=usage, address=address)

    @property
    def name(self) -> str:
        """The key's name, for logs; empty without a key."""
        return self.key.name if self.key else ""

    def priority(self, asked: Priority | None) -> Priority:
        """Return the priority of a request: what it asks for, else normal or the key's lower one.

        Raises:
            Forbidden: the key may not ask for it.
        """
        best = Priority[self.key.priority.upper()] if self.key else Priority.HIGH
        if asked is None:
            return max(best, Priority.NORMAL)
        if self.key and asked < best:
            wanted = asked.name.lower()
            raise Forbidden(
                f"priority: the key {self.key.name} may not ask for `{wanted}`; leave it out, or "
                f"make a key with `--priority {wanted}`"
            )
        return asked

    def in_flight(self) -> AbstractContextManager[None]:
        """Count a request until its client has taken the answer, as `Usage.in_flight`."""
        if self.key is None or self.usage is None or self.key.limits.in_flight is None:
            return _NOT_COUNTED
        return self.usage.in_flight(self.key, self.key.limits.in_flight)

    def check_body(self, num_bytes: int) -> None:
        """Count a body of the size that was declared, 0 for none, before it is read.

        Raises:
            RateLimited: the client has taken all that it may.
        """
        if self.usage is None:
            return
        self.usage.check_refused(self.identity)
        if self.key is not None and (rates := self.key.limits.rates):
            for unit in rates if len(rates) > 1 else ():  # all, before any is taken
                self.usage.take(self.key, unit, 0)
            self.take_body(num_bytes)

    def take_body(self, num_bytes: int) -> None:
        """Count a body that has been read: it stands for a number of texts and tokens at least.

        Raises:
            RateLimited: other requests have taken all that there is.
        """
        for unit in self.key.limits.rates if self.key else ():
            amount = max(1, math.ceil(num_bytes / BODY_BYTES[unit]))
            if amount > self._taken.get(unit, 0):
                self.take(unit, amount)

    def take_texts(self, num_rows: int, max_chars: int) -> None:
        """Count the texts of a request, the longest of `max_chars`, as `take`.

        Raises:
            TextTooLong: a text is longer than the key may send.
        """
        most = self.key.limits.max_text_chars if self.key else None
        if most and max_chars > most:
            raise TextTooLong(
                f"inputs: a text has {max_chars} characters; the key {self.name} may send texts of "
                f"{most}"
            )
        self.take("texts", num_rows)

    def take_unqueued(self, num_tokens: int) -> None:
        """Count tokens that were made of texts in vain: `refuse` counts them too."""
        self._unqueued = num_tokens
        with suppress(RateLimited):  # the request has got an error already
            self.take("tokens", num_tokens)

    def refuse(self, status: int, num_bytes: int) -> None:
        """Count a body whose request has got this status, if that says that it was no good."""
        num_bytes = max(num_bytes, self._unqueued * REFUSED_TOKEN_BYTES)
        if num_bytes and status in REFUSALS and self.usage is not None:
            self.usage.refuse(self.identity, num_bytes)

    def take(self, unit: Unit, amount: int) -> None:
        """Count what the request takes in all, as `Usage.take`."""
        if self.key is not None and self.usage is not None:
            counted = self._taken.get(unit, 0)
            self.usage.take(self.key, unit, amount, counted)
            self._taken[unit] = max(counted, amount)


class Gate:
    """Knows the keys. Without a file of keys, every client may do everything."""

    def __init__(
        self, path: Path | None = None, num_replicas: Callable[[], int] = lambda: 1
    ) -> None:
        """Read the keys.

        Args:
            path: the file of keys, read again when it changes; None to let every client pass.
            num_replicas: tells how many processes share the limits of a key.

        Raises:
            InvalidKeys: the file cannot be used.
        """
        self._path = path
        self._usage = Usage(num_replicas)
        self._keys: dict[str, Key] = {}
        self._looked_s = time.monotonic()
        self._changed: tuple[int, ...] = ()
        self._problem = ""
        if path:
            self._changed = _state_of(path)
            self._keys = _by_hash(path)

    @property
    def open(self) -> bool:
        """Whether no key is needed."""
        return self._path is None

    def identify(self, secret: str | None, address: str) -> Client:
        """Return who sends a request: the holder of the secret that came with it, or an address.

        Raises:
            Unauthorized: there is no such key, or its time is over.
        """
        if self._path is None or secret is None:
            return Client.at(address, self._usage)
        self._reload(self._path)
        given = hash_of(secret[:MAX_KEY_CHARS])
        key = self._keys.get(given)
        if key is None:  # the look-up compares hashes, whose timing tells nothing of a key
            raise Unauthorized(f"the key is unknown or revoked; {HOW}")
        if key.expires is not None and key.expired:
            raise Unauthorized(
                f"the key {key.name} has expired on {key.expires:%Y-%m-%d at %H:%M} UTC; ask for "
                "another one"
            )
        return Client(f"key:{key.name}", key, self._usage, address)

    def check(self, client: Client, scope: Needed) -> None:
        """Let a client pass or refuse it.

        Raises:
            Unauthorized: a key is needed.
            Forbidden: the key lacks the scope.
        """
        if self._path is None:
            return
        if client.key is None:
            which = "a key" if scope == "any" else f"a key with scope `{scope}`"
            raise Unauthorized(f"{which} is needed; {HOW}")
        if scope != "any" and not client.key.may(scope):
            raise Forbidden(
                f"the key {client.key.name} has scope {', '.join(client.key.scopes)}; "
                f"this needs `{scope}`"
            )

    def _reload(self, path: Path) -> None:
        """Read the file again if it has changed; a file that cannot be used changes nothing."""
        now_s = time.monotonic()
        if now_s < self._looked_s + _RELOAD_EVERY_S:
            return
        self._looked_s = now_s
        try:
            changed = _state_of(path)
            if changed == self._changed:
                return
            self._keys = _by_hash(path)
            self._changed, self._problem = changed, ""
            log.info("the keys of %s were read again: %d", path, len(self._keys))
        except (InvalidKeys, OSError) as error:
            # The file is tried again: what cannot be opened now may be opened later unchanged.
            if str(error) != self._problem:
                log.error("the keys stay as they were: %s", error)
            self._problem = str(error)


@lru_cache(1024)
def _network(address: str) -> str:
    """Return the network of an IPv6 address; what is no address stays as it is."""
    try:
        return str(ip_network((address, 64), strict=False))
    except ValueError:
        return address


def _state_of(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError as error:
        raise InvalidKeys(f"{path}: {error.strerror}; make a key with `offramp keys new`") from None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _by_hash(path: Path) -> dict[str, Key]:
    return {key.sha256: key for key in read_keys(path)}
