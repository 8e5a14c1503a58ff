"""The JSON of live policies."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import ConfigDict, Field, StringConstraints, ValidationError, field_validator

from serve.api.replicas import Refreshed
from serve.api.schemas.base import SparseModel
from serve.api.schemas.shown_rule import ShownRule
from serve.classifier.classifier import Classifier
from serve.errors import InvalidRequest
from serve.policy.chosen_exit import ChosenExit
from serve.policy.document import Policy, WholePolicy
from serve.policy.entry import MAX_WHY_CHARS, Action, Source, VersionedPolicy
from serve.policy.ladder import Certificate
from serve.policy.live import NextPolicy
from serve.policy.merge_patch import deeper_than, merge_patch
from serve.policy.rollout import RolloutState
from serve.validation import PRINTABLE, RequestModel, explain

MAX_VERSION: Final = 10**18 - 1
_MOST_LEVELS: Final = 16
# One line that terminals and logs can show.
Why = Annotated[str, StringConstraints(max_length=MAX_WHY_CHARS, pattern=PRINTABLE)]


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


class ReplicaAck(SparseModel):
    """A replica, and the version of the policy or of the models that it applies."""

    replica: str
    version: int
    problem: str | None = Field(
        default=None,
        description="Why this replica does not apply the new policy, or which of its targets it "
        "does not keep.",
    )


class Followers(SparseModel):
    """Which replicas apply a new version, and which do not."""

    replicas: list[ReplicaAck] = Field(description="Replicas that apply the policy.")
    refused: list[ReplicaAck] = Field(
        default=[],
        description="Replicas that cannot follow the policy and keep the version that they have, "
        "because they serve another bundle or release. Bring them up to date, or put a "
        "policy that all follow.",
    )
    unconfirmed: int = Field(
        description="Number of replicas that do not apply it, or did not say so in time. The "
        "policy is stored; all but the refusing ones follow within seconds, or when they answer "
        "again."
    )
    missing: list[str] = Field(
        description="Ids of replicas that have not confirmed, as far as known; those that are "
        "just starting are among them.",
    )

    @classmethod
    def followers(cls, refreshed: Refreshed, version: int) -> dict[str, Any]:
        """Return these fields of a version that was made."""
        acks = [
            ReplicaAck(replica=ack.replica, version=ack.version, problem=ack.problem or None)
            for ack in refreshed.acks
        ]
        refused = [ack for ack in acks if ack.version < version]
        return {
            "replicas": [ack for ack in acks if ack.version >= version],
            "refused": refused,
            "unconfirmed": refreshed.unconfirmed + len(refused),
            "missing": list(refreshed.missing),
        }


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


class ChangeRequest(RequestModel):
    """What every request for another policy may say."""

    # Whether it must say which version it was made from.
    needs_version: ClassVar[bool] = True

    version: int | None = Field(
        default=None,
        ge=1,
        le=MAX_VERSION,
        description="The version this change was made from; 409 if another one is current. "
        "null replaces any version. Without it the header `If-Match` must name the version: 428.",
    )
    why: Why | None = Field(default=None, description="The reason, for the history.")


class PolicyEdit(ChangeRequest, ABC):
    """A request for another policy, or for a move of a rollout."""

    @abstractmethod
    def wanted(self, classifier: Classifier, action: Action, entry: VersionedPolicy) -> NextPolicy:
        """Return what an action makes of a model's live version. May block.

        Raises:
            OfframpError: it cannot be made.
        """

    def document(self, live: Policy) -> Any:
        """Return the policy that is asked for, as JSON, whether it is one or not."""
        return live.model_dump(mode="json", exclude_none=True)


class PolicyUpdate(PolicyEdit):
    """A whole new policy, applied at once or not at all."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "version": 1,
                    "policy": {
                        "default": "balanced",
                        "profiles": {
                            "exact": {"rule": "never"},
                            "balanced": {"target": {"max_disagreement": 0.01}},
                            "three": {"target": {"max_layers": 3}},
                            "third": {"rule": "layer", "layer": 3},
                        },
                        "limits": {"overrides": "any"},
                    },
                }
            ]
        }
    )

    policy: WholePolicy

    def wanted(self, classifier: Classifier, action: Action, entry: VersionedPolicy) -> NextPolicy:
        return NextPolicy(self.policy)

    def document(self, live: Policy) -> Any:
        return self.policy.model_dump(mode="json", exclude_none=True)


class PolicyPatch(PolicyEdit):
    """A change of parts of the live policy, applied at once or not at all."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"version": 1, "patch": {"limits": {"overrides": "profiles"}}, "why": "no rules"}
            ]
        }
    )

    patch: dict[str, Any] = Field(
        description="JSON merge patch (RFC 7396) on the policy as GET shows it: objects are "
        "merged, null deletes, everything else replaces."
    )

    @field_validator("patch")
    @classmethod
    def _check_depth(cls, patch: dict[str, Any]) -> dict[str, Any]:
        if deeper_than(patch, _MOST_LEVELS):
            raise ValueError(f"nested more than {_MOST_LEVELS} levels deep; no policy is")
        return patch

    def wanted(self, classifier: Classifier, action: Action, entry: VersionedPolicy) -> NextPolicy:
        return NextPolicy(self.applied_to(entry.policy))

    def document(self, live: Policy) -> Any:
        return merge_patch(super().document(live), self.patch)

    def applied_to(self, live: Policy) -> Policy:
        """Return the policy that the patch makes of another one.

        Raises:
            InvalidRequest: it makes none.
        """
        try:
            return PolicyUpdate.model_validate({"policy": self.document(live)}).policy
        except ValidationError as error:
            raise InvalidRequest(explain(error)) from None


def made_of(live: Policy, given: Mapping[str, Any]) -> Policy:
    """Return the policy that a request gives, `policy` or a `patch` of the live one.

    Raises:
        InvalidRequest: it gives none.
    """
    try:
        if "patch" in given:
            return PolicyPatch.model_validate(given).applied_to(live)
        return PolicyUpdate.model_validate(given).policy
    except ValidationError as error:
        raise InvalidRequest(explain(error)) from None


class UnconditionalEdit(PolicyEdit):
    """A request that need not say which version it was made from."""

    needs_version: ClassVar[bool] = False

    version: int | None = Field(
        default=None,
        ge=1,
        le=MAX_VERSION,
        description="The version that must be current; 409 if another one is. Without it, and "
        "without the header `If-Match`, any may be.",
    )


class PolicyRollback(UnconditionalEdit):
    """A version of the policy to go back to."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"to": 1, "why": "too slow"}]})

    to: int = Field(ge=1, le=MAX_VERSION, description="The new version is equal to this one.")

    def wanted(self, classifier: Classifier, action: Action, entry: VersionedPolicy) -> NextPolicy:
        return NextPolicy(classifier.policy.version(self.to).entry.policy)


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
