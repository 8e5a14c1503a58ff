"""A route with a body: what it reads, how it answers, and what the documentation says of it."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from inspect import Parameter, Signature
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.access.keys import Scope as KeyScope
from serve.api.body import read_json
from serve.api.classification import Asked, Reply, answer
from serve.api.context import AppContext
from serve.api.record import RequestRecord, record_of

# From the app's context, the request and its body to the reply.
Handler = Callable[[AppContext, RequestRecord, Any], Awaitable[Reply]]
Reader = Callable[[AppContext, RequestRecord, Any], Asked]

_NAMES: Final = re.compile(r"{(\w+)}")


def classifying(read: Reader) -> Handler:
    """Return what classifies as a dialect reads requests, and writes answers."""

    @wraps(read)
    async def classify(context: AppContext, record: RequestRecord, body: Any) -> Reply:
        asked = read(context, record, body)
        return await answer(context, record, asked)

    return classify


@dataclass(frozen=True)
class Endpoint:
    """A route with a body. FastAPI documents it, and answers other methods on its path.

    Attributes:
        path: with names in braces, as FastAPI writes it.
        schema: of the body.
        handle: makes the reply; its docstring describes the route.
        documented: FastAPI's settings of the route: tags, response model, responses.
        read_body: reads the body as the schema.
        method: of HTTP.
        scope: that a key needs.
    """

    path: str
    schema: type[BaseModel]
    handle: Handler
    documented: Mapping[str, Any] = field(default_factory=dict)
    read_body: Callable[[RequestRecord, type[Any]], Awaitable[Any]] = read_json
    method: str = "POST"
    scope: KeyScope = "classify"

    @property
    def names(self) -> list[str]:
        """The names in the path."""
        return _NAMES.findall(self.path)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the whole paths of the route."""
        return re.compile(_NAMES.sub("[^/]*", self.path))

    def app(self, context: AppContext) -> ASGIApp:
        """Return the ASGI app that answers requests for which a record has been made."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            record = record_of(scope)
            if context.tracing:
                record.span_trace_id = context.tracing.trace_id()
            record.params = scope.get("path_params", record.params)
            body = await self.read_body(record, self.schema)
            reply = await self.handle(context, record, body)
            await reply.send(send)

        return app

    def add_to(self, app: FastAPI, context: AppContext) -> None:
        """Add the route, with its documentation."""
        app.router.add_api_route(
            self.path, self._described(), methods=[self.method], **self.documented
        )
        route = app.router.routes[-1]
        assert isinstance(route, APIRoute)
        route.app = self.app(context)

    def _described(self) -> Callable[..., Any]:
        """Return a function whose name, docstring and signature tell FastAPI of the route."""

        async def described() -> None: ...

        annotations: Iterable[tuple[str, Any]] = (
            ("body", self.schema),
            *((name, str) for name in self.names),
        )
        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in annotations
        ]
        described.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        described.__name__, described.__doc__ = self.handle.__name__, self.handle.__doc__
        return described
