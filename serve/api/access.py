"""Decides, from its head alone, who sends a request and whether it may pass."""

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from serve.access.gate import HOW, Client, Gate, Needed
from serve.access.proxies import TrustedProxies, without_mapping
from serve.access.web_names import ANY, allowed_host
from serve.api.request import Headers, Request
from serve.errors import Forbidden, SeveralKeys, Unauthorized, WrongHost

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
ANY_HOST: Final = (ANY,)

_KEY_HEADERS: Final = ("authorization", "x-api-key")
# Names by which the server has been asked, as they were written; looked up before they are read.
_MAX_KNOWN_HOSTS: Final = 256
_MAX_QUOTED: Final = 100

# host:port as in RFC 3986, without user names. The port may be empty. No name in DNS is longer.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{1,255}\]|[A-Za-z0-9._~-]{1,255})(:[0-9]{0,5})?")


_FOR: Final = b"x-forwarded-for"
_PROTO: Final = b"x-forwarded-proto"
_SCHEMES: Final = {b"http": "http", b"https": "https"}


class Access:
    """Checks the Host header, the key and its scope, and the origin of web pages."""

    def __init__(
        self,
        gate: Gate | None = None,
        allowed_hosts: Collection[str] = ANY_HOST,
        open_metrics: bool = False,
        cors_origins: Collection[str] = (),
    ) -> None:
        """Prepare to check requests.

        Args:
            gate: knows the keys; None lets every client pass.
            allowed_hosts: names that clients may know this server by, `*.example.com` for any
                below, or `*` for all.
            open_metrics: whether `/metrics` needs no key.
            cors_origins: of web pages that may ask without a key.
        """
        self.gate = gate or Gate()
        self.open_metrics = open_metrics
        self._hosts = {allowed_host(name) for name in allowed_hosts}
        self._known_hosts: set[str] = set()
        self._origins = frozenset(cors_origins)

    def check(
        self, scope: Mapping[str, Any], request: Request, needed: Needed | None, probe: bool
    ) -> None:
        """Let a request pass or refuse it, and note who sends it as far as that is known.

        Args:
            scope: of ASGI.
            request: of the request.
            needed: the scope that a key needs; None where no key is needed.
            probe: whether the path is one of probes.

        Raises:
            WrongHost: the Host header is not one that this server has.
            SeveralKeys: more than one key came with it.
            Unauthorized: a key is needed, or the key is unknown.
            Forbidden: the key lacks the scope, or a web page of another origin asks without one.
        """
        headers, client = request.headers, scope.get("client")
        address = without_mapping(client[0]) if client else ""
        request.client = Client.at(address)
        # Probes name the address that they ask; what they learn is no secret.
        if not (probe and needed is None):
            try:
                self._check_host(headers, scope["http_version"])
            except WrongHost:
                if needed:  # the trail names who was refused
                    with suppress(SeveralKeys, Unauthorized):
                        request.client = self.identify(headers, address)
                raise
        if needed is None:
            return
        request.client = self.identify(headers, address)
        self.gate.check(request.client, needed)
        if request.client.key is None:  # a page cannot know a key
            self._check_origin(scope["method"], headers)

    def identify(self, headers: Headers, address: str) -> Client:
        """Return who sends a request, as `Gate.identify`; no key counts where none is needed.

        Raises:
            SeveralKeys: more than one key came with it.
            Unauthorized: there is no such key.
        """
        return self.gate.identify(None if self.gate.open else _secret_of(headers), address)

    def _check_origin(self, method: str, headers: Headers) -> None:
        """Refuse a request of a web page of another origin.

        A browser sends some requests of a page to any server, without asking it first, and then
        hides the answer from the page. A server on the reader's machine would have worked by then.
        Browsers say of such requests where they come from; other clients say nothing.
        """
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if (origin is None and site is None) or {origin, ANY} & self._origins:
            return
        # Behind a proxy the Host may be another one than the page's; the browser's own word counts.
        if site is None:
            same = (origin or "").partition("://")[2] == headers.get("host", "").lower()
        else:
            same = site in ("same-origin", "none")
        follows_a_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if not (same or follows_a_link):
            shown = (origin or "another origin")[:_MAX_QUOTED]
            raise Forbidden(
                f"the request comes from a web page of {shown}; if its pages may use this server, "
                "start it with --cors-origin and their origin"
            )

    def _check_host(self, headers: Headers, http_version: str) -> None:
        given = headers.get("host")
        if given is None or "host" in headers.repeated:
            if given is None and http_version == "1.0":
                return
            number = "no Host header" if given is None else "several Host headers"
            raise WrongHost(f"the request has {number}; send one")
        if given in self._known_hosts:
            return
        self._check_name(given)
        if len(self._known_hosts) < _MAX_KNOWN_HOSTS:
            self._known_hosts.add(given)

    def _check_name(self, given: str) -> None:
        found = _HOST.fullmatch(given)
        if found is None:
            raise WrongHost("the Host header is no host name with an optional port")
        host = found[1].lower().rstrip(".")
        if "*" in self._hosts or host in self._hosts:
            return
        if not any(f"*{host[i:]}" in self._hosts for i, c in enumerate(host) if c == "."):
            name = host[:_MAX_QUOTED]
            raise WrongHost(
                f"this server is not known as {name}; if it should be, start it with "
                f"`--allowed-host {name}`"
            )


def _secret_of(headers: Headers) -> str | None:
    """Return the key that came with a request."""
    if headers.repeated and not headers.repeated.isdisjoint(_KEY_HEADERS):
        raise SeveralKeys(f"a header with a key came more than once; {HOW}")
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    other = headers.get("x-api-key")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        return other
    if other and other != secret:
        raise SeveralKeys(f"Authorization and X-API-Key have different keys; {HOW}")
    return secret


class Forwarded:
    """ASGI app around another one: puts the client's address and scheme in place of a proxy's."""

    def __init__(self, app: ASGIApp, proxies: TrustedProxies) -> None:
        self._app, self._proxies = app, proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope["client"][0] if scope.get("client") else ""
        if scope["type"] == "http" and self._proxies.trust(peer):
            given = [value for name, value in scope["headers"] if name == _FOR]
            client = self._proxies.client(peer, b",".join(given).decode("latin-1"))
            schemes = [value for name, value in scope["headers"] if name == _PROTO]
            scheme = _SCHEMES.get(b"".join(schemes).lower(), scope["scheme"])
            scope = {**scope, "client": (client, 0), "scheme": scheme}
        await self._app(scope, receive, send)
