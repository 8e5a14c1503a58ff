"""The versions of a model's policy that are kept."""

from functools import partial
from itertools import zip_longest
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
from serve.policy.difference import changes
from serve.policy.entry import VersionedPolicy
from serve.policy.live import LivePolicy

# Of the changes of one version in a list, as JSON.
MAX_LISTED_BYTES: Final = 16 * 1024
_MAX_LIMIT: Final = 1000
_Changes = dict[str, tuple[Any, Any]]

LOOK_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    404: {"model": ErrorBody, "description": "No such model, or no such version."},
    422: {"model": ErrorBody, "description": "A parameter is not as it should be."},
    429: {"model": ErrorBody, "description": "As many such requests wait as may."},
    503: {"model": ErrorBody, "description": "Where policies are kept does not answer."},
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
        listed = partial(listed_entries, classifier.policy, limit)
        entries = await context.policy_threads.change(listed)
        return PolicyHistory(model=classifier.name, entries=entries)

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
        read = partial(_with_changes, classifier.policy, version)
        entry, changed = await context.policy_threads.change(read)
        return PolicyVersion(
            model=classifier.name,
            policy=entry.policy,
            changes=changed,
            **PolicyVersion.fields_of(entry),
        )


def listed_entries(live: LivePolicy, limit: int) -> list[HistoryEntry]:
    """Return so many entries of a policy's log, newest first. May block."""
    entries = live.history(limit + 1)
    listed = []
    for entry, before in zip_longest(entries[:limit], entries[1:]):
        changed = _changed(before, entry)
        if changed and len(to_json(changed)) > MAX_LISTED_BYTES:
            changed = None
        listed.append(HistoryEntry(changes=changed, **HistoryEntry.fields_of(entry)))
    return listed


def _with_changes(live: LivePolicy, version: int) -> tuple[VersionedPolicy, _Changes | None]:
    entry, before = live.entry(version), live.find(version - 1)
    return entry, _changed(before, entry)


def _changed(before: VersionedPolicy | None, entry: VersionedPolicy) -> _Changes | None:
    """Return what an entry has changed; None if the version before is not given."""
    if entry.version == 1:
        return {}
    if before is None or before.version != entry.version - 1:
        return None
    return changes(before.policy, entry.policy)
