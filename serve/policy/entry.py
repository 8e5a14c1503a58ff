"""An entry of a policy's log: the policy, and who put it there, when and why."""

from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from serve.policy.document import DEFAULT, Policy

Source = Literal["bundle", "config", "api", "guardrail"]
Action = Literal["baseline", "put", "patch", "rollback", "guardrail"]

# The name of who has changed a policy on a server without keys.
ANONYMOUS: Final = "anonymous"
MAX_WHY_CHARS: Final = 500


class Change(NamedTuple):
    """What a log says of a change.

    Attributes:
        by: the name of the key that has asked for it, `bundle`, `config` or `guardrail`.
        why: the reason that was given; longer ones than `MAX_WHY_CHARS` are cut.
        action: what was asked for.
    """

    by: str = ANONYMOUS
    why: str | None = None
    action: Action = "put"

    @property
    def source(self) -> Source:
        """Where the policy comes from, of a change that is no baseline."""
        return "guardrail" if self.action == "guardrail" else "api"


def _action(entry: dict[str, Any]) -> Action:
    return "put" if entry.get("source") == "api" else "baseline"


class VersionedPolicy(BaseModel):
    """A policy and the version that it applies under.

    Entries of earlier releases lack `at`, `by`, `why` and `action`.

    Attributes:
        version: counts up from 1 (0 before a baseline is set); every answer names it.
        policy: the document.
        source: `bundle` (the manifest's), `config` (the deployment's), `api` or `guardrail`.
        baseline: hash of the last policy that came from bundle or config, and of the bundle. When
            it changes, the new baseline replaces what a change has put on top of the old one.
        at: when it was stored, in UTC.
        by: see `Change`.
        why: see `Change`.
        action: see `Change`.
        since: by profile, and `default`, the version since which it asks for the same. What audits
            have found under an earlier one says nothing of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: NonNegativeInt
    policy: Policy
    source: Source
    baseline: str
    at: str = ""
    by: str = ""
    why: str | None = None
    action: Action = Field(default_factory=_action)
    since: dict[str, NonNegativeInt] = {}

    @classmethod
    def of(
        cls, version: int, policy: Policy, source: Source, baseline: str, change: Change
    ) -> "VersionedPolicy":
        """Return an entry of now."""
        return cls(
            version=version,
            policy=policy,
            source=source,
            baseline=baseline,
            at=now(),
            by=change.by,
            why=change.why[:MAX_WHY_CHARS] if change.why else None,
            action=change.action,
            since=dict.fromkeys(_asked(policy), version),
        )

    def after(self, old: "VersionedPolicy") -> "VersionedPolicy":
        """Return the same, with what has not changed since an older entry."""
        before, asked = _asked(old.policy), _asked(self.policy)
        kept = {name: old.since.get(name) for name in asked if before.get(name) == asked[name]}
        since = {name: kept.get(name) or self.version for name in asked}
        return self.model_copy(update={"since": since})


def _asked(policy: Policy) -> dict[str, Any]:
    """Return all that decides about the answers of the default and of each profile."""
    limits = policy.limits.min_layer, policy.limits.max_layer
    return {
        name: (wish, policy.settings_for(None if name == DEFAULT else name), limits)
        for name, wish in policy.wishes.items()
    }


def now() -> str:
    """Return the time in UTC to the second, as ISO 8601."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
