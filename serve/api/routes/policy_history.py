"""The versions of a model's policy that are kept."""

from typing import Annotated, Any, Final

from fastapi import FastAPI, Path, Query, Request
from pydantic_core import to_json

from serve.api.context import AppContext
from serve.api.record import record_of
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.policy import (
    MAX_VERSION,
    HistoryEntry,
    PolicyHistory,
    PolicyVersion,
)
from serve.policy.live import Kept

# Of the changes of one version in a list, as JSON.
MAX_LISTED_BYTES: Final = 16 * 1024
_MAX_LIMIT: Final = 1000

LOOK_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    404: {"model": ErrorBody, "description": "No such model, or no such version."},
    422: {"model": ErrorBody, "description": "A parameter is not as it should be."},
}


def add_history_routes(app: FastAPI, context: AppContext) -> None:
    """Add the routes that show earlier versions of a policy."""
    path = "/v1/models/{model}/policy/history"

    @app.get(path, tags=["policy"], responses=LOOK_ERRORS, response_model_exclude_none=True)
    async def policy_history(
        model: str, request: Request, limit: Annotated[int, Query(ge=1, le=_MAX_LIMIT)] = 50
    ) -> PolicyHistory:
        """List the versions of the policy that are kept, newest first, and what each changed.

        Kept are the last 100, and the newest that came from the bundle or the deployment's config.
        """
        classifier = context.catalog.find(model)
        record_of(request.scope).model = classifier.name
        newest_first = reversed(classifier.policy.history[-limit:])
        return PolicyHistory(model=classifier.name, entries=list(map(listed, newest_first)))

    @app.get(
        f"{path}/{{version}}",
        tags=["policy"],
        responses=LOOK_ERRORS,
        response_model_exclude_none=True,
    )
    async def policy_version(
        model: str, request: Request, version: Annotated[int, Path(ge=1, le=MAX_VERSION)]
    ) -> PolicyVersion:
        """Show a version of the policy, and what it has changed."""
        classifier = context.catalog.find(model)
        record_of(request.scope).model = classifier.name
        entry, changes = classifier.policy.version(version)
        return PolicyVersion(
            model=classifier.name,
            policy=entry.policy,
            changes=changes,
            **PolicyVersion.fields_of(entry),
        )


def listed(kept: Kept) -> HistoryEntry:
    """Return what is shown of a version among others."""
    entry, changes = kept
    if changes and len(to_json(changes)) > MAX_LISTED_BYTES:
        changes = None
    return HistoryEntry(changes=changes, **HistoryEntry.fields_of(entry))
