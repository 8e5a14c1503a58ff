"""Pages for browsers: the console, and the documentation of the API."""

import asyncio
import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

import serve
from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Route
from serve.errors import NotFound

_CONSOLE: Final = Path(serve.__file__).parent / "console/static"
_PAGE: Final = "index.html"
_HTML: Final = "text/html; charset=utf-8"
_MEDIA_TYPES: Final = {
    ".html": _HTML,
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".LICENSE": "text/plain; charset=utf-8",
}
# The console has no script or style of its own between its tags, so none is allowed there. Data
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


async def console(context: AppContext, request: Request) -> Response:
    """Return the console's page."""
    return _answer(request, console_files()[_PAGE])


async def _console_file(context: AppContext, request: Request) -> Response:
    name = request.params["name"]
    if not name:  # the page's own addresses are relative to `/console`
        return Response(b"", {"Location": "../console"}, "", 307)
    found = console_files().get(name)
    if found is None or name == _PAGE:
        raise NotFound(f"the console has no file {name[:100]!r}; its page is at /console")
    return _answer(request, found)


async def _docs(context: AppContext, request: Request) -> Response:
    return Response(await asyncio.to_thread(_docs_page), media_type=_HTML)


async def _docs_file(context: AppContext, request: Request) -> Response:
    name = request.params["name"]
    found = (await asyncio.to_thread(_docs_files)).get(name)
    if found is None:
        raise NotFound(f"the documentation has no file {name[:100]!r}; its page is at /docs")
    return _answer(request, found)


ROUTES: Final = (
    Route("GET", "/console", console, None),
    Route("GET", "/console/{name:path}", _console_file, None),
    Route("GET", "/docs", _docs, None),
    Route("GET", "/static-offline-docs/{name:path}", _docs_file, None),
)


def _answer(request: Request, found: _File) -> Response:
    """Return a file; browsers keep it, and ask each time whether it is still the same."""
    headers = {
        "ETag": found.etag,
        "Cache-Control": "no-cache",
        "Vary": "Accept, Accept-Encoding",
    }
    if found.media_type == _HTML:
        headers["Content-Security-Policy"] = _POLICY
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(b"", headers, "", 304)
    content = found.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"], content = "gzip", found.compressed
    return Response(content, headers, found.media_type)


@cache
def console_files() -> Mapping[str, _File]:
    """Return the console's files by their path below its folder."""
    return _read(_CONSOLE, "*.*")


@cache
def _docs_files() -> Mapping[str, _File]:
    return _read(Path(str(files("fastapi_offline"))) / "static", "[sf]*.*")  # not those of ReDoc


@cache
def _docs_page() -> bytes:
    from fastapi.openapi.docs import get_swagger_ui_html

    # Relative, because a proxy may have added a prefix to the address of the page.
    folder = "static-offline-docs"
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Offramp - Swagger UI",
        swagger_js_url=f"{folder}/swagger-ui-bundle.js",
        swagger_css_url=f"{folder}/swagger-ui.css",
        swagger_favicon_url=f"{folder}/favicon.png",
    )
    return bytes(page.body)


def _read(folder: Path, pattern: str) -> Mapping[str, _File]:
    found = {}
    for file in sorted(folder.rglob(pattern)):
        content = file.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        media_type = _MEDIA_TYPES[file.suffix]
        compressed = gzip.compress(content, mtime=0)
        found[file.relative_to(folder).as_posix()] = _File(content, compressed, media_type, etag)
    return found
