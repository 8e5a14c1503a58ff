"""Loading and unloading models, and aliases."""

from typing import Any, Final

from serve.api.body import check_query, media_type, not_json, read_bytes, read_json
from serve.api.context import AppContext
from serve.api.documented import body_errors, errors
from serve.api.finished import to_its_end
from serve.api.model_changes import Asker, ModelChanges, ModelsChanged
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route
from serve.api.schemas.model_changes import (
    Aliases,
    AliasMove,
    ModelLoad,
    ModelsChange,
    ModelsReason,
)
from serve.errors import NotSupported


def changes_of(context: AppContext) -> ModelChanges:
    """Return what changes the models.

    Raises:
        NotSupported: they stay as they are.
    """
    if context.changes is None:
        raise NotSupported("the models of this server are loaded when it starts")
    return context.changes


def _answers() -> dict[int | str, dict[str, Any]]:
    said = {
        404: "No such model, bundle or alias.",
        409: "Other changes came first.",
        422: "The bundle cannot be served, or the name is not free; nothing has changed.",
        429: "Too many changes wait already.",
        503: "The store of the set of models does not answer.",
    }
    return {**body_errors(), **errors(said)}


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
    asker, name = Asker(request, body.reason), request.params["model"]
    return await _made(request, changes_of(context).load(name, body.bundle, asker))


async def unload(context: AppContext, request: Request, body: ModelsReason) -> Response:
    """Stop serving a model, in every replica; requests that it has accepted are answered."""
    asker, name = Asker(request, body.reason), request.params["model"]
    return await _made(request, changes_of(context).unload(name, asker))


async def move_alias(context: AppContext, request: Request, body: AliasMove) -> Response:
    """Let a name stand for a model, in every replica, from the next request on."""
    asker, alias = Asker(request, body.reason), request.params["alias"]
    return await _made(request, changes_of(context).move_alias(alias, body.model, asker))


async def remove_alias(context: AppContext, request: Request, body: ModelsReason) -> Response:
    """Remove an alias, in every replica; the model that it names stays."""
    asker, alias = Asker(request, body.reason), request.params["alias"]
    return await _made(request, changes_of(context).move_alias(alias, None, asker))


async def _made(request: Request, change: Any) -> Response:
    changed: ModelsChanged = await to_its_end(request, change)
    return json_response(ModelsChange.of(changed), exclude_none=True)


async def list_aliases(context: AppContext, request: Request) -> Response:
    """List the aliases, and who has changed models and aliases, when and why."""
    shown = Aliases.of(await changes_of(context).switch.stored())
    return json_response(shown, exclude_none=True)


_TAGS: Final = {"tags": ["models"]}
_LIST: Final = {
    **_TAGS,
    "response_model": Aliases,
    "responses": {503: _answers()[503]},
    "response_model_exclude_none": True,
}
_CHANGE: Final = {**_TAGS, "response_model": ModelsChange, "responses": _answers()}
_OPTIONAL: Final = {**_CHANGE, "openapi_extra": {"requestBody": {"required": False}}}
_MODEL: Final = "/v1/models/{model}"
_ALIAS: Final = "/v1/aliases/{alias}"
ROUTES: Final = (
    Route("POST", f"{_MODEL}/load", load, "admin", ModelLoad, _read, documented=_OPTIONAL),
    Route("POST", f"{_MODEL}/unload", unload, "admin", ModelsReason, _read, documented=_OPTIONAL),
    Route("PUT", _ALIAS, move_alias, "admin", AliasMove, documented=_CHANGE),
    Route("DELETE", _ALIAS, remove_alias, "admin", ModelsReason, _read, documented=_OPTIONAL),
    Route("GET", "/v1/aliases", list_aliases, "admin", documented=_LIST),
)
