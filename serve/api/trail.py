"""Changes: made to their end, and in the log with who has made them, and who was refused."""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from serve.api.policy_edits import PolicyEdit, PolicyRollback
from serve.api.request import Request, expected
from serve.classifier.catalog import Catalog
from serve.errors import Cancelled, UnknownModel
from serve.logs import TRAIL, fields
from serve.policy.difference import change_line, difference, without_secrets
from serve.policy.entry import VersionedPolicy

_Made = TypeVar("_Made")

trail = logging.getLogger(TRAIL)
# Clients could flood it, so it is cut, unlike the other one.
refusals = logging.getLogger(f"{TRAIL}.refused")

_POLICY: Final = "/v1/models/{model}/policy"
_MOVES: Final = (f"{_POLICY}/rollback", f"{_POLICY}/rollout")
# Longest reason of a refusal in the trail.
_MAX_WHY_CHARS: Final = 300
_MAX_CHANGES: Final = 20
_MAX_TAG_CHARS: Final = 40
# Messages of these errors repeat a path or a host that the client has made up.
_QUOTING: Final = (
    "method_not_allowed",
    "not_found",
    "unknown_detector",
    "unknown_model",
    "wrong_host",
)


def note_change(request: Request, old: VersionedPolicy, new: VersionedPolicy) -> None:
    """Write the line of a change that was made."""
    request.changed = True
    line = {**request.log_fields, **change_line(request.model, old, new)}
    trail.info("policy changed", extra=fields(**line))


def note_refusal(request: Request, catalog: Catalog) -> None:
    """Write the line of a request for the scope `admin`, if it was refused or cut off."""
    error, why = request.error_code, request.why[:_MAX_WHY_CHARS]
    if request.code == Cancelled.status and not (error or request.started):
        error, why = Cancelled.code, "the client left before there was an answer"
    if not error or request.changed:
        return
    of_policy = request.route == _POLICY or request.route.startswith(_MOVES)
    line = {
        **request.log_fields,
        "method": request.method,
        "model": request.model,
        "status": request.code,
        "error": error,
        "why": "" if error in _QUOTING else why,
    }
    if of_policy:
        line |= _asked(request, request.params["model"], catalog)
    what = "change of a policy" if of_policy else "request for admin"
    refusals.warning(f"{what} refused", extra=fields(**line))


def _asked(request: Request, name: str, catalog: Catalog) -> dict[str, Any]:
    """Return which model's policy was to become another one, and which, as far as it was read."""
    try:
        classifier = catalog.find(name)
    except UnknownModel:
        return {}
    asked: dict[str, Any] = {"model": classifier.name}
    body, live = request.asked, classifier.policy.current
    if not isinstance(body, PolicyEdit):
        return asked
    asked["live_version"], asked["from_version"] = live.version, body.version
    asked["if_match"] = request.headers.get("if-match", "")[:_MAX_TAG_CHARS]
    if isinstance(body, PolicyRollback):
        return {**asked, "to": body.to}
    shown = live.policy.model_dump(mode="json", exclude_none=True)
    wanted = without_secrets(difference(shown, body.document(live.policy)))
    return {**asked, "changes": dict(islice(wanted.items(), _MAX_CHANGES))}


async def to_its_end(request: Request, change: Coroutine[Any, Any, _Made]) -> _Made:
    """Return what a change returns: every change is logged, and goes to all replicas."""
    changing = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(changing)
    except asyncio.CancelledError:
        changing.add_done_callback(partial(_note_error, request))
        await asyncio.wait([changing])
        raise


def _note_error(request: Request, change: asyncio.Future[Any]) -> None:
    """Note why the change of a client that has left was not made."""
    if not change.cancelled() and (error := change.exception()):
        expected(error, request)
