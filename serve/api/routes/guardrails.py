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
from serve.api.litellm_content import PARAMETERS, texts_of
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


_TRUNCATE = '"windows": {"stride": 64, "combine": "any"}'
_NAME = "guardrails"
DETECTORS = Dialect(
    _NAME,
    re.compile(r"/api/v1/text/.*"),
    _error,
    classifies=re.compile(r"/api/v1/text/contents"),
    words={INPUT: r"contents\1", TRUNCATE: _TRUNCATE},
)
_LITELLM = re.compile(r"/beta/litellm_basic_guardrail_api")
LITELLM = Dialect(
    _NAME, _LITELLM, _error, classifies=_LITELLM, words={INPUT: r"texts\1", TRUNCATE: _TRUNCATE}
)


def add_detector_route(app: FastAPI, context: AppContext) -> None:
    """Add the route of detectors."""

    @app.post("/api/v1/text/contents", response_model=list[list[Detection]], **_OPTIONS)
    async def detect(request: Request, body: DetectorRequest) -> Response:
        """Return what flags each text, in the form of FMS and TrustyAI detectors."""
        asked = _detector(context, request, body.detector_params or GuardrailParameters())
        flagged = await flag_texts(context, request, body.contents, asked, "detector_params")

        def make(found: list[list[Found]]) -> Any:
            flagged.check_complete(found)
            return [
                _detections(each, text, flagged.kind)
                for each, text in zip(found, body.contents, strict=True)
            ]

        return await flagged.respond(make)


def add_litellm_route(app: FastAPI, context: AppContext) -> None:
    """Add the route of LiteLLM's generic guardrail."""

    @app.post(
        "/beta/litellm_basic_guardrail_api",
        response_model=LiteLLMResponse,
        response_model_exclude_none=True,
        **_OPTIONS,
    )
    async def decide(request: Request, body: LiteLLMRequest) -> Response:
        """Block a call if any of its texts is flagged, as LiteLLM's generic guardrail."""
        asked = body.additional_provider_specific_params or LiteLLMParameters()
        named = _detector(context, request, asked)
        flagged = await flag_texts(context, request, texts_of(body), named, PARAMETERS)

        def make(found: list[list[Found]]) -> Any:
            if not any(found):
                flagged.check_complete(found)
            return _decision(found)

        return await flagged.respond(make)


_OPTIONS: dict[str, Any] = {"tags": ["guardrails"], "responses": classify_errors(DetectorError)}


def _detector(
    context: AppContext, request: Request, asked: GuardrailParameters
) -> GuardrailParameters:
    """Read the header that names the detector: a model, or a profile of the only one."""
    named = request.headers.getlist(DETECTOR_ID)
    if not named:
        return asked
    if len(named) > 1:
        raise InvalidRequest(f"{DETECTOR_ID}: comes more than once; send one")
    (detector,) = named
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


def _decision(flagged: list[list[Found]]) -> dict[str, Any]:
    reasons = [
        f"text {place}: {each.label} {short(each.score)}"
        for place, found in enumerate(flagged, 1)
        for each in found
    ]
    if not reasons:
        return {"action": "NONE"}
    listed = "; ".join(reasons[:_MAX_REASONS]) + ("; ..." if len(reasons) > _MAX_REASONS else "")
    return {"action": "BLOCKED", "blocked_reason": f"flagged by the classifier: {listed}"}


_MAX_REASONS = 5
