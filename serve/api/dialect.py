"""What every dialect has: its paths, which key they need, and the shape of its errors."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serve.access.keys import Scope
from serve.errors import OfframpError

# Messages quote the request, which may be long.
MAX_MESSAGE_CHARS = 1000

# How messages name inputs, and the way to have long ones cut; see `Dialect.words`.
INPUT, TRUNCATE = r"^inputs([\[:])", '"truncate": true'

# In the place of names: every dialect.
ALL = "all"

_NO_PATH = re.compile(r"(?!)")


@dataclass(frozen=True)
class Dialect:
    """A wire format, our own or that of another server's clients.

    Patterns match whole paths, without the prefix that a proxy has added.

    Attributes:
        name: for `--dialects`.
        paths: what the dialect answers, also with errors.
        error_body: the JSON of an error, from the error and its message.
        classifies: paths that need a key with scope `classify`.
        reads: paths that are asked by POST and need scope `read`.
        probes: paths that need no key.
        statuses: what its clients expect in the place of a status of ours.
        words: what the dialect calls what messages of ours name, by a pattern of our words.
    """

    name: str
    paths: re.Pattern[str]
    error_body: Callable[[OfframpError, str], Any]
    classifies: re.Pattern[str] = _NO_PATH
    reads: re.Pattern[str] = _NO_PATH
    probes: re.Pattern[str] = _NO_PATH
    statuses: Mapping[int, int] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)

    def message(self, error: OfframpError) -> str:
        """Return an error's message in the dialect's words, cut to a sane length."""
        message = str(error)
        for ours, theirs in self.words.items():
            message = re.sub(ours, theirs, message)
        if len(message) > MAX_MESSAGE_CHARS:
            return message[:MAX_MESSAGE_CHARS] + " ..."
        return message

    def scope(self, method: str, path: str) -> Scope | None:
        """Return the scope that a request needs; None where no key is needed.

        Other paths need `read` to look at and `admin` to change.
        """
        if self.probes.fullmatch(path):
            return None
        if self.classifies.fullmatch(path):
            return "classify"
        return "read" if method in ("GET", "HEAD") or self.reads.fullmatch(path) else "admin"


def _own_error(error: OfframpError, message: str) -> Any:
    return {"error": {"code": error.code, "message": message}}


# It answers all paths that no other dialect has.
V1 = Dialect("v1", re.compile(r".*", re.DOTALL), _own_error, re.compile(r"/v1/classify"))


def dialect_of(path: str, dialects: Sequence[Dialect]) -> Dialect:
    """Return the dialect that answers a path."""
    return next((dialect for dialect in dialects if dialect.paths.fullmatch(path)), V1)
