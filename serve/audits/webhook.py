"""Posts alarms to an operator's own URL, on threads beside those that answer requests."""

import json
import logging
import threading
from queue import Empty, Full, Queue, SimpleQueue
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from serve.policy.document import host_of
from serve.proxies import proxies_for

log = logging.getLogger(__name__)

# For each step of a post, and for all of it: a receiver may send its answer byte by byte.
_TIMEOUT_S: Final = 5.0
_WHOLE_POST_S: Final = 10.0
_MOST_WAITING: Final = 16
# Posts whose receivers have not ended them in time.
_MOST_HANGING: Final = 8
_TRIES: Final = 2


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None  # the redirect becomes an HTTPError


class Webhook:
    """Posts JSON on a thread of its own, which starts with the first alarm."""

    def __init__(self, whole_post_s: float = _WHOLE_POST_S) -> None:
        """Start nothing; `whole_post_s` is the time that a post may take."""
        self._waiting: Queue[tuple[str, bytes]] = Queue(_MOST_WAITING)
        self._whole_post_s = whole_post_s
        self._thread: threading.Thread | None = None
        self._posts: list[threading.Thread] = []

    def tell(self, url: str, data: dict[str, Any]) -> None:
        """Post data soon; what cannot be told is logged, and does not raise."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait((url, json.dumps(data).encode()))
        except Full:
            log.warning("an alarm is not told to %s: others wait", host_of(url))

    def _run(self) -> None:
        while True:
            url, body = self._waiting.get()
            for tries in range(1, _TRIES + 1):
                problem = self._problem_of_post(url, body)
                if not problem:
                    break
                what = "was not told" if tries == _TRIES else "was not told yet"
                log.warning("an alarm %s to %s: %s", what, host_of(url), problem)

    def _problem_of_post(self, url: str, body: bytes) -> str:
        """Post on a thread of its own, and wait for its end as long as a post may take."""
        self._posts = [post for post in self._posts if post.is_alive()]
        if len(self._posts) >= _MOST_HANGING:
            return "earlier posts still hang"
        found: SimpleQueue[str] = SimpleQueue()
        post = threading.Thread(
            target=lambda: found.put(self._posted(url, body)), name="webhook-post", daemon=True
        )
        self._posts.append(post)
        post.start()
        try:
            return found.get(timeout=self._whole_post_s)
        except Empty:
            return f"it did not answer within {self._whole_post_s:g} s"

    def _posted(self, url: str, body: bytes) -> str:
        """Post, and return what is wrong with the answer; empty for nothing."""
        request = Request(url, body, {"Content-Type": "application/json"}, method="POST")
        try:
            opener = build_opener(_NoRedirects, ProxyHandler(proxies_for(url)))
            with opener.open(request, timeout=_TIMEOUT_S):
                return ""
        except HTTPError as error:
            error.close()
            return f"it answered {error.code}"
        except Exception as error:
            return type(error).__name__  # the text may hold the URL, and with it a secret
