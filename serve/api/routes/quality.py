"""What audits say of a model's answers."""

from fastapi import FastAPI, Request

from serve.api.context import AppContext
from serve.api.record import record_of
from serve.api.routes.models import UNKNOWN_MODEL
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.quality import QualityReport


def add_quality_route(app: FastAPI, context: AppContext) -> None:
    """Add the route that shows what audits say."""

    @app.get(
        "/v1/models/{model}/quality",
        tags=["policy"],
        responses={
            **UNKNOWN_MODEL,
            429: {"model": ErrorBody, "description": "As many such calls wait as may."},
            503: {"model": ErrorBody, "description": "Where counts are kept does not answer."},
        },
    )
    async def show_quality(model: str, request: Request) -> QualityReport:
        """Show how audited answers of all replicas differ from full depth's, and if promises hold.

        The counts of other replicas are some seconds old at most.
        """
        classifier = context.catalog.find(model)
        record_of(request.scope).model = classifier.name
        judged = await context.policy_threads.change(classifier.guardrail.judge)
        return QualityReport.of(classifier.name, judged)
