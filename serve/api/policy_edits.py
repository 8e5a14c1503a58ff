"""What clients ask to become of a policy: a new one, a patch, an earlier version."""

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from serve.api.schemas import examples
from serve.classifier.classifier import Classifier
from serve.errors import InvalidRequest
from serve.policy.difference import deeper_than, merge_patch
from serve.policy.document import Policy, WholePolicy
from serve.policy.entry import MAX_WHY_CHARS, Action, VersionedPolicy
from serve.policy.live import NextPolicy
from serve.validation import PRINTABLE, RequestModel, explain

MAX_VERSION: Final = 10**18 - 1
_MOST_LEVELS: Final = 16
# One line that terminals and logs can show.
Why = Annotated[str, StringConstraints(max_length=MAX_WHY_CHARS, pattern=PRINTABLE)]


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

    model_config = examples(
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
    )

    policy: WholePolicy

    def wanted(self, classifier: Classifier, action: Action, entry: VersionedPolicy) -> NextPolicy:
        return NextPolicy(self.policy)

    def document(self, live: Policy) -> Any:
        return self.policy.model_dump(mode="json", exclude_none=True)


class PolicyPatch(PolicyEdit):
    """A change of parts of the live policy, applied at once or not at all."""

    model_config = examples(
        {"version": 1, "patch": {"limits": {"overrides": "profiles"}}, "why": "no rules"}
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


class Proposal(RequestModel):
    """A policy that is not to be live yet: a whole one, or a patch of the live one."""

    policy: Any = Field(default=None, description="A whole policy, as for a PUT.")
    patch: Any = Field(
        default=None,
        description="In place of `policy`, a JSON merge patch (RFC 7396) on the live one, as for a "
        "PATCH.",
    )

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if len(self.model_fields_set & {"policy", "patch"}) != 1:
            raise ValueError("send a policy, or else a patch of the live one")
        return self

    def made_of(self, live: Policy) -> Policy:
        """Return the policy that is proposed.

        Raises:
            InvalidRequest: it is none.
        """
        try:
            if "patch" in self.model_fields_set:
                return PolicyPatch.model_validate({"patch": self.patch}).applied_to(live)
            return PolicyUpdate.model_validate({"policy": self.policy}).policy
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

    model_config = examples({"to": 1, "why": "too slow"})

    to: int = Field(ge=1, le=MAX_VERSION, description="The new version is equal to this one.")

    def wanted(self, classifier: Classifier, action: Action, entry: VersionedPolicy) -> NextPolicy:
        return NextPolicy(classifier.policy.version(self.to).entry.policy)
