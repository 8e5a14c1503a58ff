"""Loading and unloading models, and aliases."""

from collections.abc import Coroutine
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from serve.api.body import check_query, media_type, not_json, read_bytes, read_json
from serve.api.context import AppContext
from serve.api.model_loading import ModelChanges
from serve.api.policy_edits import Why
from serve.api.replicas import Followers, Refreshed
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Handler, Route
from serve.api.schemas import SparseModel
from serve.api.trail import to_its_end
from serve.errors import NotSupported
from serve.policy.model_set import Alias, ModelSet, SetChange
from serve.validation import RequestModel

_FORCE: Any = Field(
    default=False,
    description="Whether labels and task may differ from those of the model that has the name now.",
)
_Name = Annotated[str, StringConstraints(min_length=1, max_length=255)]


class ModelsReason(RequestModel):
    """Why the models or aliases are to change."""

    reason: Why | None = Field(default=None, description="For the history.")


class ModelLoad(ModelsReason):
    """The bundle that a model shall have."""

    bundle: _Name | None = Field(
        default=None,
        description="Name of a bundle of the model repository, or of one that the server was "
        "started with. If absent, the bundle that the model has, read anew, or else the one of "
        "the model's name.",
    )
    force: bool = _FORCE


class AliasMove(ModelsReason):
    """The model that an alias shall name."""

    model: _Name
    force: bool = _FORCE


class ModelsChange(Followers):
    """The models after a change, and the replicas that serve them."""

    version: int = Field(
        description="Version of the set of models and aliases; each change adds 1."
    )
    models: dict[str, str] = Field(description="The bundle of each model.")
    aliases: dict[str, str] = Field(description="The model that each alias names.")
    change: SetChange = Field(description="What was changed, as the history has it.")


class Aliases(SparseModel):
    """Aliases, and what was changed of models and aliases."""

    version: int
    aliases: dict[str, Alias]
    history: list[SetChange] = Field(description="The newest changes, newest first.")


def changes_of(context: AppContext) -> ModelChanges:
    """Return what changes the models.

    Raises:
        NotSupported: they stay as they are.
    """
    if context.changes is None:
        raise NotSupported("the models of this server are loaded when it starts")
    return context.changes


async def _read(request: Request, schema: type[Any]) -> Any:
    """Return a body, which may be left out; `Origins` has refused pages of other sites."""
    if media_type(request):
        return await read_json(request, schema, optional=True)
    check_query(request)
    if await read_bytes(request):
        raise not_json()
    return schema()


async def load(context: AppContext, request: Request, body: ModelLoad) -> Response:
    """Load a bundle in every replica, and then answer with it, without a failed request.

    A model of the same name is replaced; requests that it has accepted are answered by it. Applied
    in all replicas or in none.
    """
    name = request.params["model"]
    change = changes_of(context).load(request, name, body.bundle, body.reason, body.force)
    return await _made(request, change)


async def unload(context: AppContext, request: Request, body: ModelsReason) -> Response:
    """Stop serving a model, in every replica; requests that it has accepted are answered."""
    change = changes_of(context).unload(request, request.params["model"], body.reason)
    return await _made(request, change)


async def move_alias(context: AppContext, request: Request, body: AliasMove) -> Response:
    """Let a name stand for a model, in every replica, from the next request on."""
    alias = request.params["alias"]
    return await _made(
        request, changes_of(context).move_alias(request, alias, body.model, body.reason, body.force)
    )


async def remove_alias(context: AppContext, request: Request, body: ModelsReason) -> Response:
    """Remove an alias, in every replica; the model that it names stays."""
    change = changes_of(context).move_alias(request, request.params["alias"], None, body.reason)
    return await _made(request, change)


async def _made(
    request: Request, change: Coroutine[Any, Any, tuple[ModelSet, Refreshed]]
) -> Response:
    made, refreshed = await to_its_end(request, change)
    shown = ModelsChange(
        version=made.version,
        models={name: bundle.name for name, bundle in made.models.items()},
        aliases={name: alias.model for name, alias in made.aliases.items()},
        change=made.history[-1],
        **ModelsChange.followers(refreshed, made.version),
    )
    return json_response(shown, exclude_none=True)


async def list_aliases(context: AppContext, request: Request) -> Response:
    """List the aliases, and who has changed models and aliases, when and why."""
    found = await changes_of(context).switch.stored()
    newest_first = list(reversed(found.history))
    shown = Aliases(version=found.version, aliases=found.aliases, history=newest_first)
    return json_response(shown, exclude_none=True)


_ERRORS: Final = {
    404: "No such model, bundle or alias.",
    409: "Other changes came first.",
    422: "The bundle cannot be served, or the name is not free; nothing has changed.",
    429: "Too many changes wait already.",
    503: "The store of the set of models does not answer.",
}
_TAG: Final = "models"
_OPTIONAL: Final = {"openapi_extra": {"requestBody": {"required": False}}}


def _changing(method: str, path: str, handle: Handler, schema: type[RequestModel]) -> Route:
    """Return the route of a change, whose body may be left out."""
    return Route(
        method,
        path,
        handle,
        "admin",
        schema,
        _read,
        tag=_TAG,
        shown=ModelsChange,
        errors=_ERRORS,
        more=_OPTIONAL,
    )


_MODEL: Final = "/v1/models/{model}"
_ALIAS: Final = "/v1/aliases/{alias}"
ROUTES: Final = (
    _changing("POST", f"{_MODEL}/load", load, ModelLoad),
    _changing("POST", f"{_MODEL}/unload", unload, ModelsReason),
    Route(
        "PUT", _ALIAS, move_alias, "admin", AliasMove, tag=_TAG, shown=ModelsChange, errors=_ERRORS
    ),
    _changing("DELETE", _ALIAS, remove_alias, ModelsReason),
    Route(
        "GET",
        "/v1/aliases",
        list_aliases,
        "admin",
        tag=_TAG,
        shown=Aliases,
        errors={503: _ERRORS[503]},
    ),
)
