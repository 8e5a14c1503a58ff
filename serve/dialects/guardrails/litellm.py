"""LiteLLM's generic guardrail."""

from typing import Any, Final

from serve.api.context import AppContext
from serve.api.dialect import INPUT, TRUNCATE, Dialect
from serve.api.json_encoding import short
from serve.api.locks import Locks
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Route
from serve.classifier.flagger import Found
from serve.dialects.guardrails.detectors import NAME, OPTIONS, WINDOWS, error_body
from serve.dialects.guardrails.flagging import Flagged, flag_texts
from serve.dialects.guardrails.litellm_content import texts_of
from serve.dialects.guardrails.schemas import (
    LiteLLMParameters,
    LiteLLMRequest,
    LiteLLMResponse,
)

_MAX_REASONS: Final = 5


async def decide(context: AppContext, request: Request, body: LiteLLMRequest) -> Response:
    """Block a call if any of its texts is flagged, as LiteLLM's generic guardrail."""
    asked = body.additional_provider_specific_params or LiteLLMParameters()

    def texts(locks: Locks) -> list[str]:
        return texts_of(body, locks.unchecked(asked.unchecked))

    return await flag_texts(context, request, asked, texts, _decision)


def _decision(flagged: Flagged, found: list[list[Found]]) -> dict[str, Any]:
    reasons = [
        f"text {place}: {each.label} {short(each.score)}"
        for place, of_text in enumerate(found, 1)
        for each in of_text
    ]
    if not reasons:
        flagged.check_complete(found)
        return {"action": "NONE"}
    listed = "; ".join(reasons[:_MAX_REASONS]) + ("; ..." if len(reasons) > _MAX_REASONS else "")
    return {"action": "BLOCKED", "blocked_reason": f"flagged by the classifier: {listed}"}


_PATH = "/beta/litellm_basic_guardrail_api"
_OPTIONS = {
    **OPTIONS,
    "response_model": LiteLLMResponse,
    "response_model_exclude_none": True,
}

LITELLM = Dialect(
    NAME,
    error_body,
    [Route("POST", _PATH, decide, "classify", LiteLLMRequest, documented=_OPTIONS)],
    words={INPUT: r"texts\1", TRUNCATE: WINDOWS},
)
