"""What every dialect has: its paths, which key they need, and the shape of its errors."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI

from serve.access.keys import Scope as KeyScope
from serve.api.context import AppContext
from serve.api.endpoint import Endpoint
from serve.errors import OfframpError

# Messages quote the request, which may be long.
MAX_MESSAGE_CHARS = 1000

# How messages name inputs, and the way to have long ones cut; see `Dialect.words`.
INPUT, TRUNCATE = r"^inputs([\[:])", '"truncate": true'

_NO_PATH = re.compile(r"(?!)")


def _adds_nothing(app: FastAPI, context: AppContext) -> None:
    pass


@dataclass(frozen=True)
class Dialect:
    """A wire format, our own or that of another server's clients.

    Patterns match whole paths, without the prefix that a proxy has added.

    Attributes:
        name: for `--dialects`.
        paths: what the dialect answers, also with errors.
        error_body: the JSON of an error, from the error and its message.
        endpoints: its routes with a body.
        add_routes: adds its other routes.
        probes: paths that need no key.
        statuses: what its clients expect in the place of a status of ours.
        words: what the dialect calls what messages of ours name, by a pattern of our words.
    """

    name: str
    paths: re.Pattern[str]
    error_body: Callable[[OfframpError, str], Any]
    endpoints: Sequence[Endpoint] = ()
    add_routes: Callable[[FastAPI, AppContext], None] = _adds_nothing
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

    def scope(self, method: str, path: str) -> KeyScope | None:
        """Return the scope that a request needs; None where no key is needed.

        Paths that are no endpoint's need `read` to look at and `admin` to change.
        """
        if self.probes.fullmatch(path):
            return None
        for endpoint in self.endpoints:
            if endpoint.pattern.fullmatch(path):
                return endpoint.scope
        return "read" if method in ("GET", "HEAD") else "admin"


def _own_error(error: OfframpError, message: str) -> Any:
    return {"error": {"code": error.code, "message": message}}


def error_text(error: OfframpError, message: str) -> Any:
    """Return an error as the clients of several dialects read it."""
    return {"error": message}


# Its own routes come with `serve.dialects.v1`; it answers all paths that no other dialect has.
OWN = Dialect("v1", re.compile(r".*", re.DOTALL), _own_error)


def dialect_of(path: str, dialects: Sequence[Dialect]) -> Dialect:
    """Return the dialect that answers a path."""
    return next((dialect for dialect in dialects if dialect.paths.fullmatch(path)), OWN)
