"""Guardrails: the detectors of FMS and TrustyAI, and LiteLLM's generic guardrail."""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from serve.api.context import AppContext
from serve.api.dialect import INPUT, TRUNCATE, Dialect
from serve.api.flagging import flag_texts
from serve.api.json_encoding import short
from serve.api.routes.classify import classify_errors
from serve.api.schemas.guardrails import (
    Detection,
    DetectorError,
    DetectorRequest,
    GuardrailParameters,
    LiteLLMParameters,
    LiteLLMRequest,
    LiteLLMResponse,
)
from serve.classifier.flagger import Found
from serve.errors import InvalidRequest, OfframpError, UnknownModel

DETECTOR_ID = "detector-id"


def _error(error: OfframpError, message: str) -> Any:
    return {"code": error.status, "message": message}


_PATHS = re.compile(r"/api/v1/text/contents|/beta/litellm_basic_guardrail_api")
_WORDS = {INPUT: "texts[", TRUNCATE: '"windows": {"stride": 64, "combine": "any"}'}
GUARDRAILS = Dialect("guardrails", _PATHS, _error, classifies=_PATHS, words=_WORDS)


def add_guardrail_routes(app: FastAPI, context: AppContext) -> None:
    """Add the routes of guardrails."""
    options: dict[str, Any] = {
        "tags": ["guardrails"],
        "responses": classify_errors(DetectorError),
    }

    @app.post("/api/v1/text/contents", response_model=list[list[Detection]], **options)
    async def detect(request: Request, body: DetectorRequest) -> Response:
        """Return what flags each text, in the form of FMS and TrustyAI detectors."""
        asked = _detector(context, request, body.detector_params or GuardrailParameters())
        flagged = await flag_texts(context, request, body.contents, asked, "detector_params")

        def make(found: dict[int, list[Found]]) -> Any:
            return [
                _detections(found.get(place, []), text, flagged.kind)
                for place, text in enumerate(body.contents)
            ]

        return await flagged.respond(make)

    @app.post(
        "/beta/litellm_basic_guardrail_api",
        response_model=LiteLLMResponse,
        response_model_exclude_none=True,
        **options,
    )
    async def decide(request: Request, body: LiteLLMRequest) -> Response:
        """Block a call if any of its texts is flagged, as LiteLLM's generic guardrail."""
        asked = body.additional_provider_specific_params or LiteLLMParameters()
        _check_content(body, asked)
        flagged = await flag_texts(context, request, body.texts or [], asked, _PARAMETERS)
        return await flagged.respond(_decision)


_PARAMETERS = "additional_provider_specific_params"


def _detector(
    context: AppContext, request: Request, asked: GuardrailParameters
) -> GuardrailParameters:
    """Read the header that names the detector: a model, or a profile of the only one."""
    detector = request.headers.get(DETECTOR_ID)
    if detector is None:
        return asked
    models = [classifier.name for classifier in context.catalog]
    name = "model" if detector in models else "profile"
    if name == "profile":
        if asked.model is None and len(models) > 1:
            raise UnknownModel(
                f"{DETECTOR_ID}: no model {detector[:64]!r}; served are {', '.join(models)}"
            )
        classifier = context.catalog.pick(asked.model)
        if detector not in classifier.policy.current.policy.profiles:
            raise UnknownModel(
                f"{DETECTOR_ID}: {detector[:64]!r} is neither a model nor a profile of "
                f"{classifier.name}"
            )
    given = getattr(asked, name)
    if given is not None and given != detector:
        raise InvalidRequest(f"detector_params.{name}: differs from {DETECTOR_ID}; send one")
    return asked.model_copy(update={name: detector})


def _detections(found: Sequence[Found], text: str, kind: str) -> list[dict[str, Any]]:
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


def _check_content(body: LiteLLMRequest, asked: LiteLLMParameters) -> None:
    """Refuse what cannot be looked at, so that it does not pass as if it had been."""
    for name in ("images", "tools", "tool_calls"):
        if getattr(body, name) and name not in asked.unchecked:
            raise InvalidRequest(
                f"{name}: this server looks at texts only; to let {name} pass unchecked, put "
                f'"unchecked": ["{name}"] into {_PARAMETERS}'
            )


def _decision(flagged: dict[int, list[Found]]) -> dict[str, Any]:
    reasons = [
        f"text {place + 1}: {each.label} {short(each.score)}"
        for place, found in flagged.items()
        for each in found
    ]
    if not reasons:
        return {"action": "NONE"}
    listed = "; ".join(reasons[:_MAX_REASONS]) + ("; ..." if len(reasons) > _MAX_REASONS else "")
    return {"action": "BLOCKED", "blocked_reason": f"flagged by the classifier: {listed}"}


_MAX_REASONS = 5
