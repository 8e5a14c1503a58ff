"""The JSON of what audits say."""

from typing import Literal, Self

from pydantic import Field

from serve.api.schemas.base import ResponseModel
from serve.audits.quality import PolicyQuality, ProfileQuality


class QualityReport(ResponseModel):
    """What the audits of all replicas say of the live policy."""

    model: str
    version: int = Field(description="Version of the policy.")
    share: float = Field(description="Share of all texts that are audited.")
    delta: float = Field(
        description="Chance that a promise which is kept is ever called broken, and that an "
        "interval ever misses the truth."
    )
    on_broken_promise: Literal["alert", "safer"]
    profiles: dict[str, ProfileQuality]
    requests: list[ProfileQuality] = Field(
        description="Counts of the targets that requests brought themselves, and of the rules that "
        "have answered under overload: the twenty with the most audits."
    )

    @classmethod
    def of(cls, model: str, judged: PolicyQuality) -> Self:
        """Return what is shown of a judgement."""
        entry = judged.live.entry
        return cls(
            model=model,
            version=entry.version,
            share=entry.policy.audit.share,
            delta=entry.policy.guard.delta,
            on_broken_promise=entry.policy.guard.on_broken_promise,
            profiles={key.profile: quality for key, quality in judged.profiles.items()},
            requests=list(judged.requests.values()),
        )
