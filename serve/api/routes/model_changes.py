"""Loading and unloading models, and aliases."""

from typing import Any

from fastapi import FastAPI

from serve.api.body import check_query, media_type, not_json, read_bytes, read_json
from serve.api.classification import Reply
from serve.api.context import AppContext
from serve.api.documented import body_errors
from serve.api.endpoint import Endpoint
from serve.api.finished import to_its_end
from serve.api.model_changes import Asker, Changed, ModelChanges
from serve.api.record import RequestRecord
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.model_changes import (
    Aliases,
    AliasMove,
    AliasRemoval,
    ModelLoad,
    ModelsChange,
    ModelUnload,
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


def add_change_routes(app: FastAPI, context: AppContext) -> None:
    """Add the routes that change models and aliases."""
    answers = {"tags": ["models"], "response_model": ModelsChange, "responses": _answers()}
    optional = {**answers, "openapi_extra": {"requestBody": {"required": False}}}
    alias = "/v1/aliases/{alias}"
    for endpoint in (
        Endpoint("/v1/models/{model}/load", ModelLoad, load, optional, _read, scope="admin"),
        Endpoint("/v1/models/{model}/unload", ModelUnload, unload, optional, _read, scope="admin"),
        Endpoint(alias, AliasMove, move_alias, answers, method="PUT", scope="admin"),
        Endpoint(alias, AliasRemoval, remove_alias, optional, _read, "DELETE", "admin"),
    ):
        endpoint.add_to(app, context)

    @app.get(
        "/v1/aliases",
        tags=["models"],
        responses={503: _answers()[503]},
        response_model_exclude_none=True,
    )
    async def list_aliases() -> Aliases:
        """List the aliases, and who has changed models and aliases, when and why."""
        return Aliases.of(await changes_of(context).switch.stored())


def _answers() -> dict[int | str, dict[str, Any]]:
    said = {
        404: "No such model, bundle or alias.",
        409: "Other changes came first.",
        422: "The bundle cannot be served, or the name cannot be had; nothing has changed.",
        429: "As many changes wait as may.",
        503: "Where the set of models is kept does not answer.",
    }
    errors = body_errors()
    for status, text in said.items():
        errors[status] = {"model": ErrorBody, "description": text}
    return errors


async def _read(record: RequestRecord, schema: type[Any]) -> Any:
    """Return a body, which may be left out; `Origins` has refused pages of other sites."""
    if media_type(record):
        return await read_json(record, schema, optional=True)
    check_query(record)
    if await read_bytes(record):
        raise not_json()
    return schema()


async def load(context: AppContext, record: RequestRecord, body: ModelLoad) -> Reply:
    """Load a bundle in every replica, and then answer with it, without a failed request.

    A model of the same name is replaced: requests that it has taken end with it. Applied in all
    replicas or in none.
    """
    asker, name = Asker(record, body.reason), record.params["model"]
    return await _made(record, changes_of(context).load(name, body.bundle, asker))


async def unload(context: AppContext, record: RequestRecord, body: ModelUnload) -> Reply:
    """Serve a model no more, in every replica; requests that it has taken are answered."""
    asker, name = Asker(record, body.reason), record.params["model"]
    return await _made(record, changes_of(context).unload(name, asker))


async def move_alias(context: AppContext, record: RequestRecord, body: AliasMove) -> Reply:
    """Let a name stand for a model, in every replica, from the next request on."""
    asker, alias = Asker(record, body.reason), record.params["alias"]
    return await _made(record, changes_of(context).move_alias(alias, body.model, asker))


async def remove_alias(context: AppContext, record: RequestRecord, body: AliasRemoval) -> Reply:
    """Remove an alias, in every replica; the model that it names stays."""
    asker, alias = Asker(record, body.reason), record.params["alias"]
    return await _made(record, changes_of(context).move_alias(alias, None, asker))


async def _made(record: RequestRecord, change: Any) -> Reply:
    changed: Changed = await to_its_end(record, change)
    shown = ModelsChange.of(changed)
    return Reply(shown.model_dump_json(exclude_none=True).encode())
