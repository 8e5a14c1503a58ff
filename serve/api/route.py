"""A route: its method and path, who may ask, what answers, what the documentation says."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from serve.access.keys import Scope
from serve.api.body import read_json
from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Sendable
from serve.errors import InvalidRequest
from serve.validation import explain

# Answers a request; of a route with a schema it is given the body too.
Handler = Callable[..., Awaitable[Sendable]]
Parameters = TypeVar("Parameters", bound=BaseModel)

_NAMES: Final = re.compile(r"{(\w+)(:path)?}")


@dataclass(frozen=True)
class Route:
    """A method of a path: who may ask, what answers, and what the documentation says.

    Attributes:
        method: the HTTP method; GET answers HEAD too.
        path: with names in braces; `{name:path}` stands for all that is left.
        handle: answers a request, given the app's context, the request and its body. Its docstring
            describes the route.
        scope: the scope that a key needs; None where no key is needed.
        schema: the schema of the body; None where no body is read.
        read_body: reads the body as the schema.
        parameters: parameters of path and query, where they are more than texts of the path.
        probe: whether health probes ask it; then the Host header may be anything.
        documented: FastAPI's settings of the route: tags, response model, responses. Without any
            the documentation leaves the route out.
    """

    method: str
    path: str
    handle: Handler
    scope: Scope | None
    schema: type[BaseModel] | None = None
    read_body: Callable[[Request, type[Any]], Awaitable[Any]] = read_json
    parameters: type[BaseModel] | None = None
    probe: bool = False
    documented: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names in the path."""
        return [name for name, _ in _NAMES.findall(self.path)]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the whole paths of the route."""
        parts, place = [], 0
        for found in _NAMES.finditer(self.path):
            parts.append(re.escape(self.path[place : found.start()]))
            parts.append(f"(?P<{found[1]}>{'.*' if found[2] else '[^/]+'})")
            place = found.end()
        return re.compile("".join([*parts, re.escape(self.path[place:])]), re.DOTALL)

    async def answer(self, context: AppContext, request: Request) -> Sendable:
        """Read the body, and answer."""
        if self.schema is None:
            return await self.handle(context, request)
        return await self.handle(context, request, await self.read_body(request, self.schema))


def read_parameters(request: Request, model: type[Parameters]) -> Parameters:
    """Return the parameters of the path and the query.

    Raises:
        InvalidRequest: one of them is not as it should be.
    """
    given = {**dict(parse_qsl(request.query, keep_blank_values=True)), **request.params}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise InvalidRequest(explain(error)) from None
