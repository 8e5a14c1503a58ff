"""Routes and wire formats: what answers a request, who may ask, and the shape of errors."""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import orjson
from pydantic import BaseModel, ValidationError

from serve.access.gate import Needed
from serve.access.keys import Scope
from serve.api.body import read_json
from serve.api.context import AppContext
from serve.api.request import REQUEST_ID, Request, new_request_id
from serve.api.response import Response, Sendable
from serve.api.schemas import ErrorBody
from serve.errors import (
    AnswersWait,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    OfframpError,
    Overloaded,
    Unauthorized,
)
from serve.validation import explain

# Answers a request; of a route with a schema it is given the body too.
Handler = Callable[..., Awaitable[Sendable]]
Parameters = TypeVar("Parameters", bound=BaseModel)

_NAMES: Final = re.compile(r"{(\w+)(:path)?}")
# Unknown paths share one route, so that clients cannot add series to the metrics.
_UNKNOWN: Final = "other"
# Paths whose place in the table is remembered.
_MAX_KNOWN: Final = 256
# Messages quote the request, which may be long.
_MAX_MESSAGE_CHARS: Final = 1000

# How messages name inputs, and the way to have long ones cut; see `Dialect.words`.
INPUT, TRUNCATE = r"^inputs([\[:])", '"truncate": true'


@dataclass(frozen=True)
class Route:
    """A method of a path: who may ask, what answers, and what the documentation says.

    Attributes:
        method: the HTTP method; GET answers HEAD too.
        path: with names in braces; `{name:path}` stands for all that is left.
        handle: answers a request, given the app's context, the request and its body. Its docstring
            describes the route.
        scope: the scope that a key needs; None where no key is needed.
        schema: the schema of the body; None where no body is read.
        read_body: reads the body as the schema.
        parameters: parameters of path and query, where they are more than texts of the path.
        probe: whether health probes ask it; then the Host header may be anything.
        tag: the route's group in the documentation; the documentation leaves out a route without.
        shown: the type of the answer; None where it is no JSON.
        errors: why the route answers with which status, beside what all routes with a body and
            all routes that classify have.
        more: further settings of FastAPI for the documentation.
    """

    method: str
    path: str
    handle: Handler
    scope: Scope | None
    schema: type[BaseModel] | None = None
    read_body: Callable[[Request, type[Any]], Awaitable[Any]] = read_json
    parameters: type[BaseModel] | None = None
    probe: bool = False
    tag: str = ""
    shown: Any = None
    errors: Mapping[int, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names in the path."""
        return [name for name, _ in _NAMES.findall(self.path)]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the whole paths of the route."""
        parts, place = [], 0
        for found in _NAMES.finditer(self.path):
            parts.append(re.escape(self.path[place : found.start()]))
            parts.append(f"(?P<{found[1]}>{'.*' if found[2] else '[^/]+'})")
            place = found.end()
        return re.compile("".join([*parts, re.escape(self.path[place:])]), re.DOTALL)


def read_parameters(request: Request, model: type[Parameters]) -> Parameters:
    """Return the parameters of the path and the query.

    Raises:
        InvalidRequest: one of them is not as it should be.
    """
    given = {**dict(parse_qsl(request.query, keep_blank_values=True)), **request.params}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise InvalidRequest(explain(error)) from None


@dataclass(frozen=True)
class Dialect:
    """A wire format, our own or that of another server's clients.

    Attributes:
        name: the name in `--dialects`.
        error_body: the JSON of an error, from the error and its message.
        error_schema: its schema.
        routes: the dialect's routes.
        below: the beginning of paths whose errors have the dialect's form, known or not.
        statuses: what its clients expect in the place of a status of ours.
        words: what the dialect calls what messages of ours name, by a pattern of our words.
    """

    name: str
    error_body: Callable[[OfframpError, str], Any]
    error_schema: type[BaseModel]
    routes: Sequence[Route] = ()
    below: str = ""
    statuses: Mapping[int, int] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)

    def message(self, error: OfframpError) -> str:
        """Return an error's message in the dialect's words, cut to a sane length."""
        message = str(error)
        for ours, theirs in self.words.items():
            message = re.sub(ours, theirs, message)
        if len(message) > _MAX_MESSAGE_CHARS:
            return message[:_MAX_MESSAGE_CHARS] + " ..."
        return message

    def response(self, error: OfframpError) -> Response:
        """Return the response for an expected error, as the dialect's clients read it."""
        headers = {}
        if isinstance(error, Overloaded):
            headers["Retry-After"] = str(error.retry_after_s)
        if isinstance(error, AnswersWait):
            headers["Connection"] = "close"
        if isinstance(error, Unauthorized):
            headers["WWW-Authenticate"] = "Bearer"
        if isinstance(error, MethodNotAllowed):
            headers["Allow"] = error.allowed
        body = orjson.dumps(self.error_body(error, self.message(error)))
        return Response(body, headers, status=self.statuses.get(error.status, error.status))


def _own_error(error: OfframpError, message: str) -> Any:
    return {"error": {"code": error.code, "message": message}}


def error_text(error: OfframpError, message: str) -> Any:
    """Return an error as the clients of several dialects read it; `ErrorText` is its schema."""
    return {"error": message}


# Answers all paths that no other dialect has; `serve.dialects.v1` adds its own route.
OWN: Final = Dialect("v1", _own_error, ErrorBody)


def described(error: OfframpError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Describe the error of a request that has not reached the app, for the HTTP server."""
    response = OWN.response(error)
    headers = [header for header in response.raw_headers if header[0] != b"content-length"]
    return [*headers, (REQUEST_ID.encode(), new_request_id().encode())], response.content


class RouteMatch(NamedTuple):
    """What a request is for.

    Attributes:
        route: answers it; None where the path is unknown or has other methods.
        dialect: the dialect of the route, or of the path; errors are in its form.
        path: the path in the table, with names in the place of values; `other` for an unknown path.
        params: the values of those names.
        allowed: the methods of that path.
    """

    route: Route | None
    dialect: Dialect
    path: str = _UNKNOWN
    params: Mapping[str, str] = MappingProxyType({})
    allowed: str = ""

    @property
    def needed(self) -> Needed | None:
        """The scope that a key needs; for unknown paths `any`, which tells strangers nothing."""
        return self.route.scope if self.route else "any"

    @property
    def probe(self) -> bool:
        """Whether health probes ask for it."""
        return self.route is not None and self.route.probe

    async def answer(self, context: AppContext, request: Request, path: str) -> Sendable:
        """Read the body of a request for a path, and answer.

        Raises:
            OfframpError: of the route, or there is none.
        """
        if route := self.route:
            if route.schema is None:
                return await route.handle(context, request)
            return await route.handle(
                context, request, await route.read_body(request, route.schema)
            )
        if not self.allowed:
            raise NotFound(f"no route {path}; /docs lists those there are")
        method = _as_get(request.method)
        raise MethodNotAllowed(
            f"{method} does not apply to {path}; use {self.allowed}", self.allowed
        )


class Router:
    """Finds what requests are for. Of several routes that a path fits, the first counts."""

    def __init__(
        self, dialects: Sequence[Dialect], routes: Iterable[tuple[Dialect, Route]]
    ) -> None:
        """Take the dialects, and all routes, each with its dialect."""
        self._dialects = dialects
        self._patterns = [(route.pattern, dialect, route) for dialect, route in routes]
        self._at = lru_cache(_MAX_KNOWN)(self._look_up)

    def find(self, method: str, path: str) -> RouteMatch:
        """Return what a request is for."""
        targets = self._at(path)
        return targets.get(_as_get(method)) or targets[""]

    def _look_up(self, path: str) -> Mapping[str, RouteMatch]:
        """Return what each method of a path is for, and with an empty name all other methods."""
        targets: dict[str, RouteMatch] = {}
        for target in self._fitting(path):
            assert target.route is not None
            targets.setdefault(target.route.method, target)
        if not targets:
            below = (d for d in self._dialects if d.below and path.startswith(d.below))
            return {"": RouteMatch(None, next(below, OWN))}
        first = next(iter(targets.values()))
        methods = [method for method, each in targets.items() if each.path == first.path]
        allowed = ", ".join("GET, HEAD" if method == "GET" else method for method in methods)
        targets[""] = first._replace(route=None, allowed=allowed)
        return targets

    def _fitting(self, path: str) -> Iterator[RouteMatch]:
        for pattern, dialect, route in self._patterns:
            if found := pattern.fullmatch(path):
                yield RouteMatch(route, dialect, route.path, found.groupdict())


def _as_get(method: str) -> str:
    """Return the method whose answer this one gets; the HTTP server leaves out HEAD's body."""
    return "GET" if method == "HEAD" else method
