"""The connection to a server whose policy a command shows or changes."""

import http.client
import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from serve.errors import InvalidRequest, OfframpError

# The longest call is a dry run. Streams send a line every 15 s.
_TIMEOUT_S: Final = 120.0
_MOST_BYTES: Final = 64 * 2**20
_BUSY: Final = (429, 500, 502, 503, 504)
_CONFLICT: Final = (409, 412)


class CallFailed(OfframpError):
    """A call that has not done what it should.

    Attributes:
        exit_status: 1 the server has refused it, 3 another version is current, 4 the server was
            not reached or could not answer now.
    """

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class Answer(NamedTuple):
    """What a call was answered, and the status that the command ends with.

    Attributes:
        text: JSON, as the server has sent it.
    """

    text: str
    exit_status: int = 0

    @property
    def fields(self) -> dict[str, Any]:
        """The answer's JSON object."""
        found: dict[str, Any] = json.loads(self.text)
        return found


class Address(NamedTuple):
    """Where a server is, and what it is shown.

    Attributes:
        url: with the path that a proxy may have put before the server's own paths.
        key: an API key; None for a server that needs none.
        tls_ca: PEM file of the authorities that are trusted; None for the system's.
        tls_cert: PEM file with certificate and key for servers that ask for one.
    """

    url: str
    key: str | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None


class Server:
    """Sends calls to a server, each on a connection of its own; follows no redirect."""

    def __init__(self, address: Address) -> None:
        """Check the address; nothing is sent."""
        self._url = address.url.rstrip("/")
        parts = urlsplit(self._url)
        self._secure, self._path = parts.scheme == "https", parts.path
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        extra = parts.query or parts.fragment or parts.username is not None
        if parts.scheme not in ("http", "https") or not host or extra:
            raise InvalidRequest("--url: must be such as http://127.0.0.1:8000 or https://HOST")
        self._host, self._port = host, port
        self._tls = _tls(address) if self._secure else None
        self._headers = {"Authorization": f"Bearer {address.key}"} if address.key else {}

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        """Return the JSON of an answer that is not an error."""
        with self._answer(method, path, body, {}) as answer:
            text = answer.read(_MOST_BYTES).decode("utf-8", "replace")
            if answer.headers.get_content_type() != "application/json":
                raise CallFailed(f"{self._url}: what answers there is no Offramp server", 4)
            return Answer(text)

    @contextmanager
    def stream(self, path: str, last_id: str) -> Iterator[HTTPResponse]:
        """Open a stream of server-sent events, after the event of this id unless it is empty."""
        headers = {"Last-Event-ID": last_id} if last_id else {}
        with self._answer("GET", path, None, headers) as answer:
            if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                raise CallFailed(f"{self._url}: this server has no stream of events", 1)
            yield answer

    @contextmanager
    def _answer(
        self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]
    ) -> Iterator[HTTPResponse]:
        connection = self._connection()
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers = {**headers, "Content-Type": "application/json"}
        doubt = ""
        try:
            connection.connect()
            doubt = "" if method == "GET" else "; it may have been done, `history` tells"
            connection.request(method, self._path + path, content, {**self._headers, **headers})
            answer = connection.getresponse()
            if answer.status >= 300:
                raise _failure(answer, self._url)
            yield answer
        except (OSError, HTTPException) as error:
            raise CallFailed(f"{self._url}: {_reason(error)}{doubt}", 4) from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_TIMEOUT_S, context=self._tls
        )


def read_key(key_file: Path | None, from_environment: str) -> str | None:
    """Return the key of a file, else that of the environment, else None.

    Raises:
        InvalidRequest: it is no key; the message does not show it.
    """
    key = from_environment.strip()
    if key_file is not None:
        with key_file.open(encoding="utf-8", errors="replace") as file:
            key = file.read(4096).strip()
    if key and not re.fullmatch(r"[!-~]{1,512}", key):
        where = f"--key-file {key_file}" if key_file else "OFFRAMP_KEY"
        raise InvalidRequest(f"{where}: must hold one API key and nothing else")
    if key_file and not key:
        raise InvalidRequest(f"--key-file {key_file}: is empty")
    return key or None


def _tls(address: Address) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        if address.tls_ca is not None:
            context.load_verify_locations(address.tls_ca)
        if address.tls_cert is not None:
            context.load_cert_chain(address.tls_cert)
    except ssl.SSLError:
        message = "--tls-ca must be a PEM file of certificates, --tls-cert one with its key"
        raise InvalidRequest(message) from None
    return context


def _failure(answer: HTTPResponse, url: str) -> CallFailed:
    """Return what to say of an answer that is an error."""
    message = f"{url}: answers {answer.status} {answer.reason}"
    try:
        message = str(json.loads(answer.read(_MOST_BYTES))["error"]["message"])
    except (ValueError, LookupError, TypeError):
        if 300 <= answer.status < 400:
            message += f", {answer.headers.get('Location')}; give the address itself as --url"
    if answer.status == 401:
        message += "; this command takes the key from OFFRAMP_KEY or --key-file"
    status = 3 if answer.status in _CONFLICT else 4 if answer.status in _BUSY else 1
    return CallFailed(message, status)


def _reason(error: OSError | HTTPException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error.verify_message}; --tls-ca FILE names the authority to trust"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "does not speak TLS; try http://"
    if isinstance(error, TimeoutError):
        return f"no answer within {_TIMEOUT_S:g} s"
    if isinstance(error, http.client.BadStatusLine | ConnectionResetError):
        return "has closed the connection without an answer; a server with TLS wants https://"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
