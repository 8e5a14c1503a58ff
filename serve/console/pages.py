"""Serves the console's files."""

import gzip
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from serve.errors import NotFound

_FOLDER: Final = Path(__file__).parent / "static"
_PAGE: Final = "index.html"
_MEDIA_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain",
}
# The page has no script or style of its own between its tags, so none is allowed there. Data
# images are the arrows and ticks of Pico's form elements.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class _File(NamedTuple):
    content: bytes
    compressed: bytes
    media_type: str
    etag: str


def wants_page(request: Request) -> bool:
    """Tell whether a browser asks: HTML stands in `Accept`, and no JSON before it."""
    accepted = request.headers.get("accept", "").lower()
    before, html, _ = accepted.partition("text/html")
    return bool(html) and "application/json" not in before


def page(request: Request) -> Response:
    """Return the console's page."""
    return _answer(request, _files()[_PAGE])


def add_console_routes(app: FastAPI) -> None:
    """Add `/console` and the files that its page loads."""

    async def console(request: Request) -> Response:
        return page(request)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if not name:  # the page's own addresses are relative to `/console`
            return RedirectResponse("../console")
        found = _files().get(name)
        if found is None or name == _PAGE:
            raise NotFound(f"the console has no file {name[:100]!r}; its page is at /console")
        return _answer(request, found)

    _files()  # compressed before requests wait for it
    for path, endpoint in (("/console", console), ("/console/{name:path}", file)):
        app.router.routes.append(Route(path, endpoint, include_in_schema=False))


def _answer(request: Request, found: _File) -> Response:
    """Return a file; browsers keep it, and ask each time whether it is still the same."""
    headers = {
        "ETag": found.etag,
        "Cache-Control": "no-cache",
        "Vary": "Accept, Accept-Encoding",
    }
    if found.media_type == "text/html":
        headers["Content-Security-Policy"] = _POLICY
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    content = found.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"], content = "gzip", found.compressed
    return Response(content, headers=headers, media_type=found.media_type)


@cache
def _files() -> dict[str, _File]:
    """Return all files by their path below the console's folder."""
    return dict(_read())


def _read() -> Iterator[tuple[str, _File]]:
    for file in sorted(_FOLDER.rglob("*.*")):
        content = file.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        compressed = gzip.compress(content, mtime=0)
        media_type = _MEDIA_TYPES[file.suffix]
        yield file.relative_to(_FOLDER).as_posix(), _File(content, compressed, media_type, etag)
