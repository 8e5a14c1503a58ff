"""What audits say of a model's answers."""

from typing import Final, Literal, Self

from pydantic import Field

from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route
from serve.api.routes.models import UNKNOWN_MODEL, named_model
from serve.api.schemas import ResponseModel
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


async def show_quality(context: AppContext, request: Request) -> Response:
    """Show how audited answers of all replicas differ from full depth's, and if promises hold.

    The counts of other replicas are some seconds old at most.
    """
    classifier = named_model(context, request)
    return json_response(QualityReport.of(classifier.name, classifier.guardrail.latest()))


_PATH: Final = "/v1/models/{model}/quality"
ROUTES: Final = (
    Route(
        "GET", _PATH, show_quality, "read", tag="policy", shown=QualityReport, errors=UNKNOWN_MODEL
    ),
)
