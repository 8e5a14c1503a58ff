"""The versions of a model's policy that are kept."""

from typing import Final

from pydantic import BaseModel, Field
from pydantic_core import to_json

from serve.api.context import AppContext
from serve.api.documented import errors
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route, read_parameters
from serve.api.routes.models import named_model
from serve.api.schemas.policy import (
    MAX_VERSION,
    HistoryEntry,
    PolicyHistory,
    PolicyVersion,
)
from serve.policy.live import Kept

# Largest changes of one version in a list, as JSON.
MAX_LISTED_BYTES: Final = 16 * 1024
_MAX_LIMIT: Final = 1000

LOOK_ERRORS: Final = errors(
    {404: "No such model, or no such version.", 422: "A parameter is not as it should be."}
)


class HistoryParameters(BaseModel):
    """How much of a history is listed."""

    limit: int = Field(50, ge=1, le=_MAX_LIMIT)


class VersionParameters(BaseModel):
    """Which version is shown."""

    version: int = Field(ge=1, le=MAX_VERSION)


async def policy_history(context: AppContext, request: Request) -> Response:
    """List the versions of the policy that are kept, newest first, and what each changed.

    Kept are the last 100, and the newest that came from the bundle or the deployment's config.
    """
    limit = read_parameters(request, HistoryParameters).limit
    classifier = named_model(context, request)
    newest_first = reversed(classifier.policy.history[-limit:])
    history = PolicyHistory(model=classifier.name, entries=list(map(listed, newest_first)))
    return json_response(history, exclude_none=True)


async def policy_version(context: AppContext, request: Request) -> Response:
    """Show a version of the policy, and what it has changed."""
    version = read_parameters(request, VersionParameters).version
    classifier = named_model(context, request)
    entry, changes = classifier.policy.version(version)
    shown = PolicyVersion(
        model=classifier.name,
        policy=entry.policy,
        changes=changes,
        **PolicyVersion.fields_of(entry),
    )
    return json_response(shown, exclude_none=True)


_PATH: Final = "/v1/models/{model}/policy/history"
_DOCUMENTED: Final = {
    "tags": ["policy"],
    "responses": LOOK_ERRORS,
    "response_model_exclude_none": True,
}
ROUTES: Final = (
    Route(
        "GET",
        _PATH,
        policy_history,
        "admin",
        parameters=HistoryParameters,
        documented={**_DOCUMENTED, "response_model": PolicyHistory},
    ),
    Route(
        "GET",
        f"{_PATH}/{{version}}",
        policy_version,
        "admin",
        parameters=VersionParameters,
        documented={**_DOCUMENTED, "response_model": PolicyVersion},
    ),
)


def listed(kept: Kept) -> HistoryEntry:
    """Return what is shown of a version among others."""
    entry, changes = kept
    if changes and len(to_json(changes)) > MAX_LISTED_BYTES:
        changes = None
    return HistoryEntry(changes=changes, **HistoryEntry.fields_of(entry))
