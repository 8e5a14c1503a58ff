"""Posts alarms to an operator's own URL, on a thread beside those that answer requests."""

import json
import logging
import threading
from queue import Full, Queue
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 5.0
_MOST_WAITING: Final = 16
_TRIES: Final = 2


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None  # the redirect becomes an HTTPError


class Webhook:
    """Posts JSON on a thread of its own, which starts with the first alarm."""

    def __init__(self) -> None:
        """Start nothing."""
        self._waiting: Queue[tuple[str, bytes]] = Queue(_MOST_WAITING)
        self._opener = build_opener(_NoRedirects)
        self._thread: threading.Thread | None = None

    def tell(self, url: str, data: dict[str, Any]) -> None:
        """Post data soon; what cannot be told is logged, and does not raise."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait((url, json.dumps(data).encode()))
        except Full:
            log.warning("an alarm is not told to %s: others wait", _host(url))

    def _run(self) -> None:
        while True:
            url, body = self._waiting.get()
            for tries in range(1, _TRIES + 1):
                problem = self._problem_of_post(url, body)
                if not problem:
                    break
                what = "was not told" if tries == _TRIES else "was not told yet"
                log.warning("an alarm %s to %s: %s", what, _host(url), problem)

    def _problem_of_post(self, url: str, body: bytes) -> str:
        request = Request(url, body, {"Content-Type": "application/json"}, method="POST")
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S):
                return ""
        except HTTPError as error:
            error.close()
            return f"it answered {error.code}"
        except Exception as error:
            return type(error).__name__  # the text may hold the URL, and with it a secret


def _host(url: str) -> str:
    """Return what of a URL is no secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}"
