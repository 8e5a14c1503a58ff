"""The live policy of a model, its changes, and the versions that are kept."""

from functools import partial
from typing import Any, Final, Self

from pydantic import BaseModel, Field
from pydantic_core import to_json

from serve.api.body import MERGE_PATCH, read_json
from serve.api.context import AppContext
from serve.api.policy_change import change_policy, tag_of
from serve.api.policy_edits import (
    MAX_VERSION,
    PolicyEdit,
    PolicyPatch,
    PolicyRollback,
    PolicyUpdate,
)
from serve.api.replicas import Followers
from serve.api.request import Request
from serve.api.response import JSON, Response, json_response
from serve.api.route import Handler, Route, read_parameters
from serve.api.routes.models import UNKNOWN_MODEL, named_model
from serve.api.schemas import ShownRule, SparseModel
from serve.policy.applied import AppliedPolicy
from serve.policy.difference import changes
from serve.policy.document import Policy
from serve.policy.entry import Action, Source, VersionedPolicy
from serve.policy.ladder import Certificate
from serve.policy.live import Kept
from serve.policy.resolution import ChosenExit
from serve.policy.rollout import RolloutState

# Largest changes of one version in a list, as JSON.
MAX_LISTED_BYTES: Final = 16 * 1024
_MAX_LIMIT: Final = 1000

LOOK_ERRORS: Final = {
    404: "No such model, or no such version.",
    422: "A parameter is not as it should be.",
}
CHANGE_ERRORS: Final = {
    404: "No such model, or no such version to go back to.",
    409: "Another version is current, or a rollout is not in the state that this needs.",
    412: "No version of If-Match is current.",
    422: "The model cannot follow this policy.",
    428: "Neither version nor If-Match came.",
    429: "Too many changes wait already.",
    503: "The store of policies does not answer.",
}


class ResolvedExit(SparseModel):
    """What the default or a profile has become, within the limits."""

    rule: ShownRule
    expected_layers: float | None = Field(
        default=None, description="Mean number of layers per text. Only under a target."
    )
    certificate: Certificate | None = Field(
        default=None,
        description="Only under a target whose rule is certified; the rule `never` has one only if "
        "the target is from a reference.",
    )
    certificates: list[Certificate] | None = Field(
        default=None,
        description="Only under a target about the decisions of a flag: the certificates of what "
        "is missed and of false alarms. A side that the rule leaves to full depth needs none.",
    )
    problem: str | None = Field(
        default=None,
        description="Why the rule does not decide what the policy says, and what would mend it: "
        "the limits change the rule, or it saves nothing, or this replica cannot keep a target "
        "that another one can. Missing otherwise.",
    )

    @classmethod
    def of(cls, chosen: ChosenExit) -> Self:
        """Return what is shown of a choice."""
        found = chosen.resolution
        return cls(
            rule=chosen.rule.rule,
            expected_layers=found.rung.expected_layers if found else None,
            certificate=found.certificate if found else None,
            certificates=list(found.certificates) if found and found.certificates else None,
            problem=chosen.problem,
        )


class ShownRollout(SparseModel):
    """What a version has to do with a rollout."""

    state: RolloutState
    percent: float = Field(description="Share of the requests that follow the candidate.")
    why: str | None = None


class ShownEntry(SparseModel):
    """A version of a policy: where it comes from, who has put it there, when and why."""

    version: int
    source: Source = Field(
        description="Where the policy comes from: the bundle, the deployment's config, a request, "
        "the guardrail, or a rollout that has moved by itself."
    )
    at: str = Field(
        description="When the version was stored, in UTC; empty if an earlier release has stored "
        "it."
    )
    by: str = Field(
        description="Name of the key that has asked for it, `anonymous` on a server without keys; "
        "`bundle`, `config`, `guardrail` or `rollout` where no request has made the change."
    )
    why: str | None = Field(default=None, description="The reason that came with the change.")
    action: Action = Field(description="The kind of change that was asked for.")
    rollout: ShownRollout | None = Field(
        default=None,
        description="The rollout that runs or has ended with this version; missing without one.",
    )

    @classmethod
    def fields_of(cls, entry: VersionedPolicy) -> dict[str, Any]:
        """Return what an entry has of these fields."""
        fields = {name: getattr(entry, name) for name in ShownEntry.model_fields}
        if entry.rollout:
            fields["rollout"] = ShownRollout.model_validate(entry.rollout, from_attributes=True)
        return fields


class PolicyReport(ShownEntry):
    """The live policy."""

    model: str
    policy: Policy
    resolved: dict[str, ResolvedExit] = Field(
        description="What the default and each profile mean on this replica now."
    )
    config_problem: str | None = Field(
        default=None,
        description="Only if the policies that the deployment's config has now are refused: why. "
        "The policies before them stay.",
    )


class PolicyChange(PolicyReport, Followers):
    """The new policy, and the replicas that apply it already."""

    changes: dict[str, tuple[Any, Any]] = Field(
        description="Old and new value of each place in which it differs from the version before."
    )
    dropped_profiles: list[str] = Field(
        description="Profiles of the replaced policy that the new one lacks. Requests that name "
        "one now get the error `unknown_profile`."
    )
    dropped_limits: list[str] = Field(
        description="Limits that the replaced policy set and the new one does not."
    )


class HistoryEntry(ShownEntry):
    """A version of a policy, and what it has changed."""

    changes: dict[str, tuple[Any, Any]] | None = Field(
        default=None,
        description="Old and new value of each place in which it differs from the version before; "
        "null where one of them has nothing. Missing if the version before is not kept any more, "
        "and in lists if it is long.",
    )


class PolicyHistory(SparseModel):
    """The versions of a policy that are kept, newest first."""

    model: str
    entries: list[HistoryEntry]


class PolicyVersion(HistoryEntry):
    """A version of a policy as a whole."""

    model: str
    policy: Policy


async def show_policy(context: AppContext, request: Request) -> Response:
    """Show the live policy."""
    classifier = named_model(context, request)
    entry, applied, *_ = classifier.policy.live
    policy = entry.policy if may_change(request) else entry.policy.public
    report = PolicyReport(
        model=classifier.name,
        **PolicyReport.fields_of(entry),
        policy=policy,
        resolved=_resolved(applied),
        config_problem=context.catalog.config_problem,
    )
    return json_response(report, {"ETag": tag_of(entry.version)}, exclude_none=True)


def may_change(request: Request) -> bool:
    """Tell whether a client may change policies, and so may see all of them."""
    key = request.client.key
    return key is None or key.may("admin")


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


def listed(kept: Kept) -> HistoryEntry:
    """Return what is shown of a version among others."""
    entry, changes = kept
    if changes and len(to_json(changes)) > MAX_LISTED_BYTES:
        changes = None
    return HistoryEntry(changes=changes, **HistoryEntry.fields_of(entry))


_PATH: Final = "/v1/models/{model}/policy"
_TAG: Final = "policy"


_read_patch: Final = partial(read_json, types=(JSON, MERGE_PATCH))


def _changing(
    method: str, below: str, handle: Handler, schema: type[PolicyEdit], read_body: Any = read_json
) -> Route:
    return Route(
        method,
        f"{_PATH}{below}",
        handle,
        "admin",
        schema,
        read_body,
        tag=_TAG,
        shown=PolicyChange,
        errors=CHANGE_ERRORS,
    )


def _kept(below: str, handle: Handler, parameters: type[BaseModel], shown: Any) -> Route:
    return Route(
        "GET",
        f"{_PATH}/history{below}",
        handle,
        "admin",
        parameters=parameters,
        tag=_TAG,
        shown=shown,
        errors=LOOK_ERRORS,
    )


ROUTES: Final = (
    Route("GET", _PATH, show_policy, "read", tag=_TAG, shown=PolicyReport, errors=UNKNOWN_MODEL),
    _changing("PUT", "", replace_policy, PolicyUpdate),
    _changing("PATCH", "", patch_policy, PolicyPatch, _read_patch),
    _changing("POST", "/rollback", roll_back_policy, PolicyRollback),
    _kept("", policy_history, HistoryParameters, PolicyHistory),
    _kept("/{version}", policy_version, VersionParameters, PolicyVersion),
)
