"""The table of routes: from the method and the path of a request to what answers it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from serve.access.gate import Needed
from serve.api.context import AppContext
from serve.api.dialect import OWN, Dialect
from serve.api.request import Request
from serve.api.response import Sendable
from serve.api.route import Route
from serve.errors import MethodNotAllowed, NotFound

# Unknown paths share one route, so that clients cannot add series to the metrics.
_UNKNOWN: Final = "other"
# Paths whose place in the table is remembered.
_MAX_KNOWN: Final = 256


class RouteMatch(NamedTuple):
    """What a request is for.

    Attributes:
        route: answers it; None where the path is unknown or has other methods.
        dialect: the dialect of the route, or of the path; errors are in its form.
        path: the path in the table, with names in the place of values; `other` for an unknown path.
        params: the values of those names.
        allowed: the methods of that path.
    """

    route: Route | None
    dialect: Dialect
    path: str = _UNKNOWN
    params: Mapping[str, str] = MappingProxyType({})
    allowed: str = ""

    @property
    def needed(self) -> Needed | None:
        """The scope that a key needs; for unknown paths `any`, which tells strangers nothing."""
        return self.route.scope if self.route else "any"

    @property
    def probe(self) -> bool:
        """Whether health probes ask for it."""
        return self.route is not None and self.route.probe

    async def answer(self, context: AppContext, request: Request, path: str) -> Sendable:
        """Answer a request for a path.

        Raises:
            OfframpError: of the route, or there is none.
        """
        if self.route:
            return await self.route.answer(context, request)
        if not self.allowed:
            raise NotFound(f"no route {path}; /docs lists those there are")
        method = _as_get(request.method)
        raise MethodNotAllowed(
            f"{method} does not apply to {path}; use {self.allowed}", self.allowed
        )


class Router:
    """Finds what requests are for. Of several routes that a path fits, the first counts."""

    def __init__(self, dialects: Sequence[Dialect], own: Iterable[Route]) -> None:
        """Take the dialects with their routes, and the routes of no dialect."""
        self._dialects = dialects
        self.routes = [
            *((dialect, route) for dialect in dialects for route in dialect.routes),
            *((OWN, route) for route in own),
        ]
        self._patterns = [(route.pattern, dialect, route) for dialect, route in self.routes]
        self._at = lru_cache(_MAX_KNOWN)(self._look_up)

    def find(self, method: str, path: str) -> RouteMatch:
        """Return what a request is for."""
        targets = self._at(path)
        return targets.get(_as_get(method)) or targets[""]

    def _look_up(self, path: str) -> Mapping[str, RouteMatch]:
        """Return what each method of a path is for, and with an empty name all other methods."""
        targets: dict[str, RouteMatch] = {}
        for target in self._fitting(path):
            assert target.route is not None
            targets.setdefault(target.route.method, target)
        if not targets:
            below = (d for d in self._dialects if d.below and path.startswith(d.below))
            return {"": RouteMatch(None, next(below, OWN))}
        first = next(iter(targets.values()))
        methods = [method for method, each in targets.items() if each.path == first.path]
        allowed = ", ".join("GET, HEAD" if method == "GET" else method for method in methods)
        targets[""] = first._replace(route=None, allowed=allowed)
        return targets

    def _fitting(self, path: str) -> Iterator[RouteMatch]:
        for pattern, dialect, route in self._patterns:
            if found := pattern.fullmatch(path):
                yield RouteMatch(route, dialect, route.path, found.groupdict())


def _as_get(method: str) -> str:
    """Return the method whose answer this one gets; the HTTP server leaves out HEAD's body."""
    return "GET" if method == "HEAD" else method
