"""A wire format: its routes, and the shape of its errors."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serve.api.route import Route
from serve.errors import OfframpError

# Messages quote the request, which may be long.
MAX_MESSAGE_CHARS = 1000

# How messages name inputs, and the way to have long ones cut; see `Dialect.words`.
INPUT, TRUNCATE = r"^inputs([\[:])", '"truncate": true'


@dataclass(frozen=True)
class Dialect:
    """A wire format, our own or that of another server's clients.

    Attributes:
        name: the name in `--dialects`.
        error_body: the JSON of an error, from the error and its message.
        routes: the dialect's routes.
        below: the beginning of paths whose errors have the dialect's form, known or not.
        statuses: what its clients expect in the place of a status of ours.
        words: what the dialect calls what messages of ours name, by a pattern of our words.
    """

    name: str
    error_body: Callable[[OfframpError, str], Any]
    routes: Sequence[Route] = ()
    below: str = ""
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


def _own_error(error: OfframpError, message: str) -> Any:
    return {"error": {"code": error.code, "message": message}}


def error_text(error: OfframpError, message: str) -> Any:
    """Return an error as the clients of several dialects read it."""
    return {"error": message}


# Answers all paths that no other dialect has; `serve.dialects.v1` adds its own route.
OWN = Dialect("v1", _own_error)
