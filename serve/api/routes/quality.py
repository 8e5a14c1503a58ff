"""What audits say of a model's answers."""

from typing import Final

from serve.api.context import AppContext
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
    return json_response(QualityReport.of(classifier.name, classifier.guardrail.latest()))


_DOCUMENTED: Final = {
    "tags": ["policy"],
    "response_model": QualityReport,
    "responses": UNKNOWN_MODEL,
}
_PATH: Final = "/v1/models/{model}/quality"
ROUTES: Final = (Route("GET", _PATH, show_quality, "read", documented=_DOCUMENTED),)
