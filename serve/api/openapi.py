"""The OpenAPI document of the routes, and the page that shows it. FastAPI makes both."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from inspect import Parameter, Signature
from typing import Annotated, Any, Final

import orjson
from pydantic_core import PydanticUndefined

from serve.access.keys import Scope
from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Dialect, Route
from serve.version import __version__

DESCRIPTION: Final = """
Classifies texts with transformers that may stop early. A request may say with `exit` when a text
leaves the model; without it the default rule of the live policy decides.
"""
_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}

# Why every route with a body, and every one that classifies, answers with an error.
_OF_BODIES: Final = {
    400: "The body is not JSON.",
    413: "The body is too large.",
    415: "The body is not declared as JSON, or is compressed.",
}
_OF_CLASSIFYING: Final = {
    403: "The policy does not allow this exit.",
    404: "No such model.",
    422: "The request asks for something that cannot be.",
    429: "The queue is full, or the key has taken its share.",
    500: "The model failed on this input.",
    503: "The server is starting or stopping.",
    504: "The timeout passed before every text had reached an exit.",
}
_RETRY_AFTER: Final = {
    "Retry-After": {
        "description": "In seconds.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
}

# A line of the attributes in a docstring, and those that go on with it.
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


class Document:
    """The OpenAPI document, made when it is first asked for.

    Attributes:
        route: shows it.
    """

    def __init__(self, routes: Sequence[tuple[Dialect, Route]]) -> None:
        """Take the routes with their dialects; those without a tag are left out."""
        self._routes = [(dialect, route) for dialect, route in routes if route.tag]
        self._written = lru_cache(maxsize=4)(self._write)  # by the prefix of a proxy
        self._writing = asyncio.Lock()  # all who ask meanwhile wait for the same
        self.route = Route("GET", "/openapi.json", self._show, None)

    async def _show(self, context: AppContext, request: Request) -> Response:
        async with self._writing:
            return Response(await asyncio.to_thread(self._written, request.root_path.rstrip("/")))

    def _write(self, root_path: str) -> bytes:
        servers = {"servers": [{"url": root_path}]} if root_path else {}
        return orjson.dumps({**make_document(self._routes), **servers})


def make_document(routes: Sequence[tuple[Dialect, Route]]) -> dict[str, Any]:
    """Return the OpenAPI document of routes; it takes a quarter of a second."""
    from fastapi import FastAPI
    from starlette.responses import Response as PlainResponse

    app = FastAPI(title="Offramp", version=__version__, description=DESCRIPTION)
    for dialect, route in routes:
        said: dict[str, Any] = {"tags": [route.tag], "methods": [route.method], **route.more}
        said["responses"] = _errors(dialect, route) | said.get("responses", {})
        if route.shown is None:
            said["response_class"] = PlainResponse  # its body is no JSON
        else:
            said["response_model"] = route.shown
        app.add_api_route(route.path, _described(route), **said)
    document = app.openapi()
    components = document.setdefault("components", {})
    components["securitySchemes"] = _SCHEMES
    for schema in components.get("schemas", {}).values():
        _describe_fields(schema)
    for _, route in routes:
        if route.scope:
            operation = document["paths"][route.path][route.method.lower()]
            _add_security(operation, route.scope)
            _add_answer(operation, "400", "The Host header is not one of this server.")
    return document


def _errors(dialect: Dialect, route: Route) -> dict[int | str, dict[str, Any]]:
    """Return what the document says of a route's errors, in the shape of its dialect."""
    classifies = route.scope == "classify"
    reasons = {
        **(_OF_BODIES if route.schema else {}),
        **(_OF_CLASSIFYING if classifies else {}),
        **route.errors,
    }
    said: dict[int | str, str] = {"default": "Any other error."}
    for ours, reason in reasons.items():
        status = dialect.statuses.get(ours, ours)
        said[status] = f"{said[status]} {reason}" if status in said else reason
    found: dict[int | str, dict[str, Any]] = {
        status: {"model": dialect.error_schema, "description": text}
        for status, text in said.items()
    }
    if classifies:
        found[429]["headers"] = _RETRY_AFTER
    return found


def _described(route: Route) -> Callable[..., Any]:
    """Return a function whose name, docstring and signature tell FastAPI of a route."""

    async def described() -> None: ...

    described.__signature__ = Signature(list(_parameters(route)))  # type: ignore[attr-defined]
    described.__name__, described.__doc__ = route.handle.__name__, route.handle.__doc__
    return described


def _parameters(route: Route) -> Iterator[Parameter]:
    from fastapi import Path, Query

    fields = route.parameters.model_fields if route.parameters else {}
    if route.schema:
        yield Parameter("body", Parameter.KEYWORD_ONLY, annotation=route.schema)
    for name in [*route.names, *(name for name in fields if name not in route.names)]:
        kind: Any = str
        default = Parameter.empty
        if name in fields:
            place = Path() if name in route.names else Query()
            field = fields[name]
            kind = Annotated[(field.annotation, *field.metadata, place)]
            if field.default is not PydanticUndefined:
                default = field.default
        yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _describe_fields(schema: dict[str, Any]) -> None:
    """Describe the fields of a schema by the attributes in its docstring."""
    text, _, attributes = schema.get("description", "").partition("\n\nAttributes:\n")
    if attributes:
        schema["description"] = text
    for name, said in _ATTRIBUTE.findall(attributes):
        if field := schema["properties"].get(name):
            sentence = " ".join(said.replace("None", "null").split())
            field.setdefault("description", sentence[0].upper() + sentence[1:])


def _add_security(operation: dict[str, Any], scope: Scope) -> None:
    operation["security"] = [{name: []} for name in _SCHEMES]
    needs = f"Where the server has keys: one with scope `{scope}` is needed."
    _add_answer(operation, "401", f"No key, or an unknown one. {needs}")
    operation["responses"]["401"]["headers"] = {
        "WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}
    }
    _add_answer(operation, "403", f"{needs} Or a web page of another origin asks.")


def _add_answer(operation: dict[str, Any], status: str, reason: str) -> None:
    """Add a reason to those for which an operation answers with an error of this status."""
    answers = operation["responses"]
    said = answers.get(status, {}).get("description", "")
    answers[status] = {
        "description": f"{said} {reason}".strip(),
        "content": answers["default"]["content"],
    }
