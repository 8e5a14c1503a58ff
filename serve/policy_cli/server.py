"""The calls of a command to the server whose policy it is about."""

import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from serve.errors import InvalidRequest, OfframpError

# The longest call is a dry run. Streams send a line every 15 s.
_TIMEOUT_S: Final = 120.0
_MOST_BYTES: Final = 64 * 2**20
# Of answers that are errors: 3 for another version, 4 where the server cannot answer now, else 1.
_EXIT_STATUS: Final = {409: 3, 412: 3} | dict.fromkeys((429, 500, 502, 503, 504), 4)


class CallFailed(OfframpError):
    """A call that has not done what it should; the command ends with this status."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class Answer(NamedTuple):
    """JSON as the server has sent it, and the status that the command ends with."""

    text: str
    exit_status: int = 0

    @property
    def fields(self) -> dict[str, Any]:
        """The answer's JSON object."""
        found: dict[str, Any] = json.loads(self.text)
        return found


class Server:
    """Sends calls, each on a connection of its own; a key goes to no other address."""

    def __init__(self, url: str, key: str | None, tls: ssl.SSLContext) -> None:
        """Check the address; nothing is sent."""
        if not re.fullmatch(r"https?://[^/?#@\s]+(/[^?#\s]*)?", url):
            raise InvalidRequest("--url: must be such as http://127.0.0.1:8000 or https://HOST")
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._opener = build_opener(_NoRedirect, HTTPSHandler(context=tls))

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        """Return the JSON of an answer that is not an error."""
        content = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, content, self._headers, method=method)
        if content:
            request.add_header("Content-Type", "application/json")
        with self._answer(request, "application/json") as answer:
            return Answer(answer.read(_MOST_BYTES).decode("utf-8", "replace"))

    def text(self, path: str) -> str:
        """Return the plain text of an answer that is not an error."""
        with self._answer(Request(self._url + path, headers=self._headers), "text/plain") as answer:
            return answer.read(_MOST_BYTES).decode("utf-8", "replace")

    @contextmanager
    def stream(self, path: str, last_id: str) -> Iterator[HTTPResponse]:
        """Open a stream of server-sent events, after the event of this id unless it is empty."""
        request = Request(self._url + path, headers=self._headers)
        if last_id:
            request.add_header("Last-Event-ID", last_id)
        with self._answer(request, "text/event-stream") as answer:
            yield answer

    @contextmanager
    def _answer(self, request: Request, media_type: str) -> Iterator[HTTPResponse]:
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                if answer.headers.get_content_type() != media_type:
                    raise CallFailed(f"{self._url}: what answers is no Offramp server", 4)
                yield answer
        except HTTPError as error:
            raise self._refusal(error) from None
        except (OSError, HTTPException) as error:
            # What the server had to read is wrapped; what it had to answer is not.
            sent = request.get_method() != "GET" and not isinstance(error, URLError)
            doubt = "; the change may have been made, see `history`" if sent else ""
            reason = getattr(error, "reason", None) or error
            raise CallFailed(f"{self._url}: {_described(reason)}{doubt}", 4) from None

    def _refusal(self, answer: HTTPError) -> CallFailed:
        try:
            message = str(json.loads(answer.read(_MOST_BYTES))["error"]["message"])
        except (OSError, HTTPException, ValueError, LookupError, TypeError):
            moved = answer.headers.get("Location")
            message = f"{self._url}: answers {answer.code}" + (f", see {moved}" if moved else "")
        if answer.code == 401:
            message += "; this command takes the key from OFFRAMP_KEY or --key-file"
        return CallFailed(message, _EXIT_STATUS.get(answer.code, 1))


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Make an error of it: the key would go along."""


def read_key(file: Path | None, environment: str) -> str | None:
    """Return the key of a file, else that of the environment, else None; no message shows it."""
    where, key = "OFFRAMP_KEY", environment.strip()
    if file:
        where, key = str(file), file.read_bytes()[:4096].decode("utf-8", "replace").strip()
    if (file or key) and not re.fullmatch(r"[!-~]{1,512}", key):
        raise InvalidRequest(f"{where}: must hold an API key and nothing else")
    return key or None


def read_tls(ca: Path | None, cert: Path | None) -> ssl.SSLContext:
    """Return how to reach servers with TLS."""
    context = ssl.create_default_context()
    for file, load in ((ca, context.load_verify_locations), (cert, context.load_cert_chain)):
        try:
            if file:
                load(file)
        except ssl.SSLError:
            raise InvalidRequest(f"{file}: must be a PEM file; --tls-cert with its key") from None
    return context


def _described(error: object) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error.verify_message}; --tls-ca FILE names the authority to trust"
    if isinstance(error, ssl.SSLError):
        return f"{error.reason or error}; does the server speak TLS?"
    if isinstance(error, ConnectionResetError):
        return "has closed the connection without an answer; with TLS it wants https://"
    return str(getattr(error, "strerror", None) or error)
