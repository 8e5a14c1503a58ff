"""The live policy of a model."""

from typing import Any, Final

from serve.api.body import read_patch
from serve.api.context import AppContext
from serve.api.documented import body_errors, errors
from serve.api.policy_change import change_policy
from serve.api.precondition import tag_of
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route
from serve.api.routes.models import UNKNOWN_MODEL, named_model
from serve.api.schemas.policy import (
    PolicyChange,
    PolicyEdit,
    PolicyPatch,
    PolicyReport,
    PolicyRollback,
    PolicyUpdate,
    ResolvedExit,
)
from serve.policy.applied import AppliedPolicy
from serve.policy.difference import changes
from serve.policy.entry import Action, VersionedPolicy


async def show_policy(context: AppContext, request: Request) -> Response:
    """Show the live policy."""
    classifier = named_model(context, request)
    entry, applied, *_ = classifier.policy.live
    report = PolicyReport(
        model=classifier.name,
        **PolicyReport.fields_of(entry),
        policy=entry.policy,
        resolved=_resolved(applied),
        config_problem=context.catalog.config_problem,
    )
    return json_response(report, {"ETag": tag_of(entry.version)}, exclude_none=True)


async def replace_policy(context: AppContext, request: Request, body: PolicyUpdate) -> Response:
    """Replace the policy in every replica, from the next request on.

    Applied whole or not at all. A target that cannot be had is refused. The answer lists the
    replicas that apply the policy, and those that have not confirmed in time.
    """
    return await _change(context, request, body, "put")


async def patch_policy(context: AppContext, request: Request, body: PolicyPatch) -> Response:
    """Change parts of the policy in every replica, with a JSON merge patch (RFC 7396).

    The policy that comes out is checked and answered as that of a PUT. A rule that takes the place
    of a target, or of a rule with other fields, must delete their fields: send null for each.
    """
    return await _change(context, request, body, "patch")


async def roll_back_policy(context: AppContext, request: Request, body: PolicyRollback) -> Response:
    """Go back to a version of the policy that is kept: a new version becomes equal to it.

    Checked and answered as a PUT of that policy.
    """
    return await _change(context, request, body, "rollback")


def change_errors() -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the errors of a change."""
    said = {
        404: "No such model, or no such version to go back to.",
        409: "Another version is current, or a rollout is not in the state that this needs.",
        412: "No version of If-Match is current.",
        422: "The model cannot follow this policy.",
        428: "Neither version nor If-Match came.",
        429: "Too many changes wait already.",
        503: "The store of policies does not answer.",
    }
    return {**body_errors(), **errors(said)}


_PATH: Final = "/v1/models/{model}/policy"
_SHOW: Final = {
    "tags": ["policy"],
    "response_model": PolicyReport,
    "responses": UNKNOWN_MODEL,
    "response_model_exclude_none": True,
}
_CHANGE: Final = {"tags": ["policy"], "response_model": PolicyChange, "responses": change_errors()}
ROUTES: Final = (
    Route("GET", _PATH, show_policy, "read", documented=_SHOW),
    Route("PUT", _PATH, replace_policy, "admin", PolicyUpdate, documented=_CHANGE),
    Route("PATCH", _PATH, patch_policy, "admin", PolicyPatch, read_patch, documented=_CHANGE),
    Route(
        "POST", f"{_PATH}/rollback", roll_back_policy, "admin", PolicyRollback, documented=_CHANGE
    ),
)


async def _change(
    context: AppContext, request: Request, body: PolicyEdit, action: Action
) -> Response:
    classifier, (old, new, applied), refreshed = await change_policy(context, request, body, action)
    shown = PolicyChange(
        model=classifier.name,
        **PolicyChange.fields_of(new),
        policy=new.policy,
        resolved=_resolved(applied),
        config_problem=context.catalog.config_problem,
        changes=changes(old.policy, new.policy),
        dropped_profiles=sorted(old.policy.profiles.keys() - new.policy.profiles.keys()),
        dropped_limits=sorted(_limits(old) - _limits(new)),
        **PolicyChange.followers(refreshed, new.version),
    )
    return json_response(shown, {"ETag": tag_of(new.version)}, exclude_none=True)


def _limits(entry: VersionedPolicy) -> set[str]:
    """Return the names of the limits that a policy sets."""
    return set(entry.policy.limits.model_dump(exclude_none=True, exclude_defaults=True))


def _resolved(applied: AppliedPolicy) -> dict[str, ResolvedExit]:
    return {name: ResolvedExit.of(chosen) for name, chosen in applied.named.items()}
