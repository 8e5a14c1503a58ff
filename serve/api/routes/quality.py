"""What audits say of a model's answers."""

from typing import Final

from serve.api.context import AppContext
from serve.api.documented import errors
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route
from serve.api.routes.models import UNKNOWN_MODEL, named_model
from serve.api.schemas.quality import QualityReport


async def show_quality(context: AppContext, request: Request) -> Response:
    """Show how audited answers of all replicas differ from full depth's, and if promises hold.

    The counts of other replicas are some seconds old at most.
    """
    classifier = named_model(context, request)
    judged = await context.policy_threads.change(classifier.guardrail.judge)
    return json_response(QualityReport.of(classifier.name, judged))


_DOCUMENTED: Final = {
    "tags": ["policy"],
    "response_model": QualityReport,
    "responses": {
        **UNKNOWN_MODEL,
        **errors(
            {429: "Too many such calls wait already.", 503: "The store of counts does not answer."}
        ),
    },
}
_PATH: Final = "/v1/models/{model}/quality"
ROUTES: Final = (Route("GET", _PATH, show_quality, "read", documented=_DOCUMENTED),)
