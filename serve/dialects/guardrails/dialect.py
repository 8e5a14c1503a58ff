"""Guardrails: the detectors of FMS and TrustyAI, and LiteLLM's generic guardrail."""

from collections.abc import Sequence
from typing import Any, Final

from serve.api.context import AppContext
from serve.api.dialect import INPUT, TRUNCATE, Dialect
from serve.api.documented import classify_errors
from serve.api.json_encoding import short
from serve.api.locks import Locks
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Route
from serve.classifier.flagger import FlaggedBy
from serve.dialects.guardrails.flagging import Flagged, flag_texts
from serve.dialects.guardrails.litellm_content import texts_of
from serve.dialects.guardrails.schemas import (
    Detection,
    DetectorError,
    DetectorRequest,
    GuardrailParameters,
    LiteLLMParameters,
    LiteLLMRequest,
    LiteLLMResponse,
)
from serve.errors import OfframpError

_NAME: Final = "guardrails"
# The way to have long texts looked at.
_WINDOWS: Final = '"windows": {"stride": 64, "combine": "any"}'
_MAX_REASONS: Final = 5


async def detect(context: AppContext, request: Request, body: DetectorRequest) -> Response:
    """Return what flags each text, in the form of FMS and TrustyAI detectors."""
    asked = body.detector_params or GuardrailParameters()

    def make(flagged: Flagged, found: list[list[FlaggedBy]]) -> Any:
        flagged.check_complete(found)
        return [
            _detections(each, text, flagged.kind)
            for each, text in zip(found, body.contents, strict=True)
        ]

    return await flag_texts(context, request, asked, lambda _: body.contents, make)


def _detections(found: Sequence[FlaggedBy], text: str, kind: str) -> list[dict[str, Any]]:
    detections = []
    for each in found:
        start, end = each.span or (0, len(text))
        detections.append(
            {
                "start": start,
                "end": end,
                "text": text[start:end],
                "detection": kind,
                "detection_type": each.label,
                "score": short(each.score),
            }
        )
    return detections


async def decide(context: AppContext, request: Request, body: LiteLLMRequest) -> Response:
    """Block a call if any of its texts is flagged, as LiteLLM's generic guardrail."""
    asked = body.additional_provider_specific_params or LiteLLMParameters()

    def texts(locks: Locks) -> list[str]:
        return texts_of(body, locks.unchecked(asked.unchecked))

    return await flag_texts(context, request, asked, texts, _decision)


def _decision(flagged: Flagged, found: list[list[FlaggedBy]]) -> dict[str, Any]:
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


def _error(error: OfframpError, message: str) -> Any:
    """Return an error as the clients of guardrails read it."""
    return {"code": error.status, "message": message}


def _post(path: str, handle: Any, schema: Any, shown: Any, **more: Any) -> list[Route]:
    responses = classify_errors(DetectorError)
    documented = {"tags": [_NAME], "responses": responses, "response_model": shown, **more}
    return [Route("POST", path, handle, "classify", schema, documented=documented)]


_BELOW = "/api/v1/text/"
DETECTORS = Dialect(
    _NAME,
    _error,
    _post(f"{_BELOW}contents", detect, DetectorRequest, list[list[Detection]]),
    below=_BELOW,
    words={INPUT: r"contents\1", TRUNCATE: _WINDOWS},
)
LITELLM = Dialect(
    _NAME,
    _error,
    _post(
        "/beta/litellm_basic_guardrail_api",
        decide,
        LiteLLMRequest,
        LiteLLMResponse,
        response_model_exclude_none=True,
    ),
    words={INPUT: r"texts\1", TRUNCATE: _WINDOWS},
)
