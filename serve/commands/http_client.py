"""Calls of a command to a running server, and the options by which it finds the server."""

import json
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

import typer

from serve.bounded_file import UnfitFile, read_file
from serve.errors import InvalidRequest, OfframpError
from serve.proxies import proxies_for

Url: TypeAlias = Annotated[str, typer.Option(envvar="OFFRAMP_URL", help="Address of the server.")]
KeyFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="File with the API key. Default: OFFRAMP_KEY.")
]
TlsCa: TypeAlias = Annotated[
    Path | None, typer.Option(exists=True, help="PEM file of authorities to trust.")
]
TlsCert: TypeAlias = Annotated[
    Path | None, typer.Option(exists=True, help="PEM file: certificate and its key.")
]
LOCAL: Final = "http://127.0.0.1:8000"

# The longest call is a dry run. Streams send a line every 15 s.
_TIMEOUT_S: Final = 120.0
_MOST_BYTES: Final = 64 * 2**20
_MOST_LINE_BYTES: Final = 2**20
# Of a key, or of certificates.
_MOST_FILE_BYTES: Final = 2**20
# A lost stream is opened again after 1, 2, 4, 8, 10, 10, ... seconds.
_MOST_WAIT_S: Final = 10.0
# Of answers that are errors: 3 for another version, 4 where the server cannot answer now, else 1.
_EXIT_STATUS: Final = {409: 3, 412: 3} | dict.fromkeys((429, 500, 502, 503, 504), 4)

Json = dict[str, Any]


class CallFailed(OfframpError):
    """A call has not done what it should; the command ends with this status."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class Server:
    """Sends calls, each on a connection of its own; a key is shown to no other address."""

    def __init__(self, url: str, key: str | None, tls: ssl.SSLContext | None) -> None:
        """Check the address; nothing is sent."""
        if not re.fullmatch(r"https?://[^/?#@\s]+(/[^?#\s]*)?", url):
            raise InvalidRequest("--url: must be such as http://127.0.0.1:8000 or https://HOST")
        self._url = self._named = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        proxies = proxies_for(url)
        for proxy in proxies.values():
            name = proxy.rpartition("@")[2]  # behind the proxy's own password
            self._named = f"{self._url} through the proxy {name}"
            if key and url.startswith("http:"):
                raise InvalidRequest(
                    f"{self._named}: the proxy would see the key; take https, or name the server "
                    "in no_proxy"
                )
        handlers = [ProxyHandler(proxies), *([HTTPSHandler(context=tls)] if tls else [])]
        self._opener = build_opener(_NoRedirect, *handlers)

    @classmethod
    def at(
        cls,
        url: str = LOCAL,
        key_file: Path | None = None,
        tls_ca: Path | None = None,
        tls_cert: Path | None = None,
    ) -> Self:
        """Return the server that the options name; nothing is sent."""
        tls = _read_tls(tls_ca, tls_cert) if url.startswith("https:") else None
        return cls(url, _read_key(key_file), tls)

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        """Return the JSON of an answer that is not an error; of the body, what is not None goes."""
        content = None
        if body is not None:
            given = {name: value for name, value in body.items() if value is not None}
            content = json.dumps(given).encode()
        text = self._text(method, path, "application/json", content)
        try:
            found: Json = json.loads(text)
        except (ValueError, RecursionError):
            raise self.stranger() from None
        return found

    def metrics(self) -> str:
        """Return the page of metrics."""
        return self._text("GET", "/metrics", "text/plain")

    def stranger(self) -> CallFailed:
        """Return the error of an answer that Offramp would not give."""
        return CallFailed(f"{self._named}: what answers is no Offramp server", 4)

    def events(self, path: str, say: Callable[[str], None]) -> Iterator[Json]:
        """Yield server-sent events without end; a lost stream is taken up where it was lost.

        Args:
            path: of the stream.
            say: is told why a stream is opened again.

        Raises:
            CallFailed: the first connection fails, or a later one is refused.
        """
        last_id, wait_s = "", 0.0
        while True:
            try:
                headers = {"Last-Event-ID": last_id} if last_id else {}
                with self._answer("GET", path, "text/event-stream", headers=headers) as stream:
                    wait_s = 1.0
                    for event in _read_events(stream):
                        last_id = event.pop("id") or last_id
                        yield event
                message = "the server has ended the stream"
            except CallFailed as failed:
                if not wait_s or failed.exit_status != 4:
                    raise
                message = str(failed)
            say(f"{message}; trying again in {wait_s:g} s")
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _MOST_WAIT_S)

    def _text(self, method: str, path: str, media_type: str, content: bytes | None = None) -> str:
        headers = {"Content-Type": "application/json"} if content else {}
        with self._answer(method, path, media_type, content, headers) as answer:
            return answer.read(_MOST_BYTES).decode("utf-8", "replace")

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        media_type: str,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Iterator[HTTPResponse]:
        """Send a call; every call of a command goes through here."""
        sent = {**self._headers, **(headers or {})}
        request = Request(self._url + path, content, sent, method=method)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                if answer.headers.get_content_type() != media_type:
                    raise self.stranger()
                yield answer
        except HTTPError as error:
            raise self._refusal(error) from None
        except (OSError, HTTPException) as error:
            # urllib wraps what went wrong while it was sending, and not what came after that.
            was_sent = method != "GET" and not isinstance(error, URLError)
            doubt = "; the change may have been made, see `history`" if was_sent else ""
            reason = getattr(error, "reason", None) or error
            raise CallFailed(f"{self._named}: {_described(reason)}{doubt}", 4) from None

    def _refusal(self, answer: HTTPError) -> CallFailed:
        try:
            message = str(json.loads(answer.read(_MOST_BYTES))["error"]["message"])
        except (OSError, HTTPException, ValueError, LookupError, TypeError):
            moved = answer.headers.get("Location")
            message = f"{self._named}: answers {answer.code}" + (f", see {moved}" if moved else "")
        if answer.code == 401:
            message += "; this command takes the key from OFFRAMP_KEY or --key-file"
        return CallFailed(message, _EXIT_STATUS.get(answer.code, 1))


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Make an error of it: the key would go along."""


def _read_events(stream: HTTPResponse) -> Iterator[Json]:
    """Yield each event with its kind, its data and its id, which may be empty."""
    fields: dict[str, str] = {}
    while line := stream.readline(_MOST_LINE_BYTES):
        name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
        if name or value:
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            kind, event_id = fields.get("event", ""), fields.get("id", "")
            yield {"id": event_id, "event": kind, "data": json.loads(fields["data"])}
        fields = {}


def _read_key(file: Path | None) -> str | None:
    """Return the key of a file, else that of the environment, else None; no message shows it."""
    where, key = "OFFRAMP_KEY", os.environ.get("OFFRAMP_KEY", "").strip()
    if file:
        where, key = str(file), _content(file).decode("utf-8", "replace").strip()
    if (file or key) and not re.fullmatch(r"[!-~]{1,512}", key):
        raise InvalidRequest(f"{where}: must hold an API key and nothing else")
    return key or None


def _read_tls(ca: Path | None, cert: Path | None) -> ssl.SSLContext:
    """Return how to reach servers with TLS."""
    context = ssl.create_default_context()
    for file, load in ((ca, context.load_verify_locations), (cert, context.load_cert_chain)):
        try:
            if file:
                _content(file)
                load(file)
        except ssl.SSLError:
            raise InvalidRequest(f"{file}: must be a PEM file; --tls-cert with its key") from None
    return context


def _content(file: Path) -> bytes:
    try:
        return read_file(file, _MOST_FILE_BYTES)
    except UnfitFile as error:
        raise InvalidRequest(f"{file} {error}") from None


def _described(error: object) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error.verify_message}; --tls-ca FILE names the authority to trust"
    if isinstance(error, ssl.SSLError):
        return f"{error.reason or error}; does the server speak TLS?"
    if isinstance(error, ConnectionResetError):
        return "has closed the connection without an answer; with TLS it wants https://"
    return str(getattr(error, "strerror", None) or error)
