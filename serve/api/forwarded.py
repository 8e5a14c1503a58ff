"""Shows requests to the app as clients have sent them to the proxies before the server."""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from serve.access.proxies import TrustedProxies

_FOR: Final = b"x-forwarded-for"
_PROTO: Final = b"x-forwarded-proto"
_SCHEMES: Final = {b"http": "http", b"https": "https"}


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
