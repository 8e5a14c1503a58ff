"""The detectors of FMS and TrustyAI."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import INPUT, TRUNCATE, Dialect, Route
from serve.api.schemas import ResponseModel, examples
from serve.api.shown import short
from serve.classifier.classify_request import MAX_LIST
from serve.classifier.flagger import FlaggedBy
from serve.dialects.guardrails.flagging import (
    WINDOWS,
    DetectorError,
    Flagged,
    flag_texts,
    guardrail_error,
)
from serve.dialects.guardrails.parameters import GuardrailParameters
from serve.validation import RequestModel


class DetectorRequest(RequestModel):
    """Texts for a detector."""

    model_config = examples(
        {"contents": ["The movie was awesome."], "detector_params": {"flag": {"negative": 0.8}}}
    )

    contents: list[str] = Field(max_length=MAX_LIST, fail_fast=True)
    detector_params: GuardrailParameters | None = None


class Detection(ResponseModel):
    """A label that reaches its threshold, or an entity of such a label."""

    start: int = Field(description="The first character of the text (0) or of the entity.")
    end: int = Field(description="The character after the last.")
    text: str
    detection: str = Field(description="The kind of model that has found it.")
    detection_type: str = Field(description="The label.")
    score: float


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


_BELOW = "/api/v1/text/"
DETECTORS = Dialect(
    "guardrails",
    guardrail_error,
    DetectorError,
    [
        Route(
            "POST",
            f"{_BELOW}contents",
            detect,
            "classify",
            DetectorRequest,
            tag="guardrails",
            shown=list[list[Detection]],
        )
    ],
    below=_BELOW,
    words={INPUT: r"contents\1", TRUNCATE: WINDOWS},
)
