"""Keeps web pages of other origins from making this server work."""

from collections.abc import Collection, Mapping
from typing import Final

from serve.access.web_names import ANY
from serve.errors import Forbidden

_MAX_QUOTED: Final = 100


class Origins:
    """Knows from where web pages may ask.

    A browser sends some requests of a page to any server, without asking it first, and then hides
    the answer from the page. A server on the reader's machine would have worked by then. Browsers
    say of such requests where they come from; other clients say nothing.
    """

    def __init__(self, allowed: Collection[str] = ()) -> None:
        """Take the origins of others, or `*` for all."""
        self._allowed = frozenset(allowed)

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse a request of a page of another origin.

        Args:
            method: of the request.
            headers: by names in lower case.

        Raises:
            Forbidden: it is one.
        """
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return
        if origin in self._allowed or ANY in self._allowed:
            return
        # Behind a proxy the Host may be another one than the page's; the browser's own word counts.
        if site is None:
            same = (origin or "").partition("://")[2] == headers.get("host", "").lower()
        else:
            same = site in ("same-origin", "none")
        if not same and not (method == "GET" and _follows_a_link(headers)):
            shown = (origin or "another origin")[:_MAX_QUOTED]
            raise Forbidden(
                f"the request comes from a web page of {shown}; if its pages may use this server, "
                "start it with --cors-origin and their origin"
            )


def _follows_a_link(headers: Mapping[str, str]) -> bool:
    return headers.get("sec-fetch-mode") == "navigate"
