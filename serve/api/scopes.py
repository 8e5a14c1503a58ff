"""Which key a path needs, for the server and for its documentation."""

import re
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final

from fastapi import FastAPI

from serve.access.keys import Scope as KeyScope
from serve.api.dialect import Dialect, dialect_of

# Who has changed a policy, or the models, and why is for those who may change it.
_OF_CHANGES: Final = re.compile(r"/v1/models/[^/]*/policy/.*|/v1/aliases(/.*)?", re.DOTALL)
# As the live policy itself, of which it is a part.
_ROLLOUT: Final = re.compile(r"/v1/models/[^/]*/policy/rollout")
_PAGES: Final = ("/docs", "/openapi.json", "/console")
_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def required_scope(
    method: str, path: str, open_metrics: bool = False, dialects: Sequence[Dialect] = ()
) -> KeyScope | None:
    """Return the scope that a request needs, None for open routes."""
    if path.startswith("/health/") or (path == "/metrics" and open_metrics):
        return None
    if path == "/" and method in ("GET", "HEAD"):  # load balancers ask it
        return None
    # They describe the software, not this server, and browsers cannot send a key with a page.
    if path in _PAGES or path.startswith(("/static-offline-docs/", "/console/")):
        return None
    shows_rollout = method in ("GET", "HEAD") and _ROLLOUT.fullmatch(path)
    if _OF_CHANGES.fullmatch(path) and not shows_rollout:
        return "admin"
    return dialect_of(path, dialects).scope(method, path)


def is_probe(path: str, dialects: Sequence[Dialect]) -> bool:
    """Tell whether a path is one of probes."""
    if path.startswith("/health/") or path == "/":
        return True
    return dialect_of(path, dialects).probes.fullmatch(path) is not None


def describe_access(app: FastAPI, dialects: Sequence[Dialect]) -> None:
    """Say in the app's OpenAPI document which key each route needs."""
    make: Callable[[], dict[str, Any]] = app.openapi
    making = Lock()  # the document takes a quarter of a second, on threads of those who ask first

    def openapi() -> dict[str, Any]:
        with making:
            document = make()
            schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
            if not schemes:
                schemes |= _SCHEMES
                _describe(document["paths"], dialects)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(paths: dict[str, dict[str, Any]], dialects: Sequence[Dialect]) -> None:
    for path, operations in paths.items():
        for method, operation in operations.items():
            if scope := required_scope(method.upper(), path, dialects=dialects):
                _add_security(operation, scope)
                _add_answer(operation, "400", "The Host header is not one of this server.")


def _add_security(operation: dict[str, Any], scope: KeyScope) -> None:
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
