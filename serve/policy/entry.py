"""An entry of a policy's log: the policy, and who put it there, when and why."""

from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from serve.policy.document import DEFAULT, Policy
from serve.policy.rollout import Rollout
from serve.validation import unsaid

Source = Literal["bundle", "config", "api", "guardrail", "rollout"]
# Moves of a rollout: `rollout` is its start and each step; `failed` is its end by itself.
RolloutAction = Literal["rollout", "promote", "pause", "resume", "abort", "failed"]
Action = Literal["baseline", "put", "patch", "rollback", "guardrail"] | RolloutAction

# The name of who has changed a policy on a server without keys.
ANONYMOUS: Final = "anonymous"
MAX_WHY_CHARS: Final = 500


class Change(NamedTuple):
    """What a log says of a change.

    Attributes:
        by: the name of the key that has asked for it, `bundle`, `config`, `guardrail` or
            `rollout`.
        why: the reason that was given; longer ones than `MAX_WHY_CHARS` are cut.
        action: what was asked for.
        automatic: whether a rollout has made it by itself.
    """

    by: str = ANONYMOUS
    why: str | None = None
    action: Action = "put"
    automatic: bool = False

    @property
    def moves_rollout(self) -> bool:
        """Whether it starts, moves or ends a rollout."""
        return self.action in get_args(RolloutAction)

    @property
    def source(self) -> Source:
        """Where the policy comes from, of a change that is no baseline."""
        if self.automatic:
            return "rollout"
        return "guardrail" if self.action == "guardrail" else "api"


def _action(entry: dict[str, Any]) -> Action:
    return "put" if entry.get("source") == "api" else "baseline"


class VersionedPolicy(BaseModel):
    """A policy and the version that it applies under.

    Entries of earlier releases lack `at`, `by`, `why` and `action`.

    Attributes:
        version: counts up from 1 (0 before a baseline is set); every answer names it.
        policy: the document.
        source: `bundle` (the manifest's), `config` (the deployment's), `api`, `guardrail` or
            `rollout`.
        baseline: hash of the last policy that came from bundle or config, and of the bundle. When
            it changes, the new baseline replaces what a change has put on top of the old one.
        at: when it was stored, in UTC.
        by: see `Change`.
        why: see `Change`.
        action: see `Change`.
        since: by profile, and `default`, the version since which it asks for the same. What audits
            have found under an earlier one says nothing of it.
        rollout: the rollout that runs, or that this very entry has ended; None without one.
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
    rollout: Rollout | None = unsaid()

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

    @property
    def running(self) -> Rollout | None:
        """The rollout, if requests follow its candidate."""
        return self.rollout if self.rollout and self.rollout.active else None

    def ending_rollout_of(self, old: "VersionedPolicy") -> "VersionedPolicy":
        """Return the same, with the rollout that an older version has as superseded."""
        if not old.running:
            return self
        ended = old.running.become("superseded", f"version {self.version}: {self.action}")
        return self.model_copy(update={"rollout": ended})

    def following(self, old: "VersionedPolicy", rollout: Rollout | None) -> "VersionedPolicy":
        """Return the same as it follows an older version, with the rollout that it is about."""
        before, asked = _asked(old.policy), _asked(self.policy)
        kept = {name: old.since.get(name) for name in asked if before.get(name) == asked[name]}
        since = {name: kept.get(name) or self.version for name in asked}
        new = self.model_copy(update={"since": since, "rollout": rollout})
        return new if rollout else new.ending_rollout_of(old)


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
