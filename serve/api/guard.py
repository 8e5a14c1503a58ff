"""Decides, from its head alone, whether a request may pass."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import Scope as ASGIScope

from serve.access.gate import Client, Gate
from serve.access.keys import Scope
from serve.api.dialect import Dialect, dialect_of
from serve.errors import WrongHost

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
ANY_HOST: Final = ("*",)

_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}

# host:port as in RFC 3986, without user names.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(:[0-9]{1,5})?")


class Guard:
    """Checks the Host header, the key and its scope."""

    def __init__(
        self,
        gate: Gate | None = None,
        allowed_hosts: Collection[str] = ANY_HOST,
        open_metrics: bool = False,
    ) -> None:
        """Make a guard.

        Args:
            gate: knows the keys; None lets every client pass.
            allowed_hosts: names that clients may know this server by, `*.example.com` for any
                below, or `*` for all.
            open_metrics: whether `/metrics` needs no key.
        """
        self.gate = gate or Gate()
        self._hosts = {host.lower() for host in allowed_hosts}
        self._open_metrics = open_metrics

    def check(self, scope: ASGIScope, headers: Headers, dialects: Sequence[Dialect] = ()) -> Client:
        """Return who sends the request.

        Args:
            scope: of the request.
            headers: of the request.
            dialects: they tell which key their paths need.

        Raises:
            WrongHost: the Host header is not one that this server has.
            Unauthorized: a key is needed, or the key is unknown.
            Forbidden: the key lacks the scope.
        """
        path = route_path(scope)
        needed = required_scope(scope["method"], path, self._open_metrics, dialects)
        # Probes name the address that they ask; what they learn is no secret.
        if needed is not None or not _is_probe(path, dialects):
            self._check_host(headers, scope["http_version"])
        address = scope["client"][0] if scope.get("client") else ""
        if needed is None:
            return Client(address)
        client = self.gate.identify(secret_of(headers), address)
        self.gate.check(client, needed)
        return client

    def _check_host(self, headers: Headers, http_version: str) -> None:
        given = headers.getlist("host")
        if len(given) != 1:
            if not given and http_version == "1.0":
                return
            raise WrongHost(f"the request has {len(given)} Host headers; send one")
        found = _HOST.fullmatch(given[0])
        if found is None:
            raise WrongHost("the Host header is no host name with an optional port")
        host = found[1].lower().rstrip(".")
        if "*" in self._hosts or host in self._hosts:
            return
        if not any(f"*{host[i:]}" in self._hosts for i, c in enumerate(host) if c == "."):
            name = host[:100]
            raise WrongHost(
                f"this server is not known as {name}; if it should be, start it with "
                f"`--allowed-host {name}`"
            )


def required_scope(
    method: str, path: str, open_metrics: bool = False, dialects: Sequence[Dialect] = ()
) -> Scope | None:
    """Return the scope that a request needs, None for open routes."""
    if path.startswith("/health/") or (path == "/metrics" and open_metrics):
        return None
    # They describe the software, not this server, and browsers cannot send a key with a page.
    if path in ("/docs", "/openapi.json") or path.startswith("/static-offline-docs/"):
        return None
    return dialect_of(path, dialects).scope(method, path)


def _is_probe(path: str, dialects: Sequence[Dialect]) -> bool:
    if path.startswith("/health/"):
        return True
    return dialect_of(path, dialects).probes.fullmatch(path) is not None


def route_path(scope: ASGIScope) -> str:
    """Return the path that the app routes by: without the prefix that a proxy has added."""
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    if prefix and path.startswith(f"{prefix}/"):
        return path.removeprefix(prefix)
    return path


def describe_access(app: FastAPI, dialects: Sequence[Dialect]) -> None:
    """Say in the app's OpenAPI document which key each route needs."""
    make: Callable[[], dict[str, Any]] = app.openapi

    def openapi() -> dict[str, Any]:
        document = make()
        schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
        if not schemes:
            schemes |= _SCHEMES
            for path, operations in document["paths"].items():
                for method, operation in operations.items():
                    if scope := required_scope(method.upper(), path, dialects=dialects):
                        _add_security(operation, scope)
                        _add_answer(operation, "400", "The Host header is not one of this server.")
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _add_security(operation: dict[str, Any], scope: Scope) -> None:
    operation["security"] = [{name: []} for name in _SCHEMES]
    needs = f"Where the server has keys: one with scope `{scope}` is needed."
    _add_answer(operation, "401", f"No key, or an unknown one. {needs}")
    operation["responses"]["401"]["headers"] = {
        "WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}
    }
    _add_answer(operation, "403", needs)


def _add_answer(operation: dict[str, Any], status: str, reason: str) -> None:
    """Add a reason to those for which an operation answers with an error of this status."""
    answers = operation["responses"]
    said = answers.get(status, {}).get("description", "")
    answers[status] = {
        "description": f"{said} {reason}".strip(),
        "content": answers["default"]["content"],
    }


def secret_of(headers: Mapping[str, str]) -> str | None:
    """Return the key that came with a request, from its headers by names in lower case."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return secret.strip()
    return headers.get("x-api-key")
