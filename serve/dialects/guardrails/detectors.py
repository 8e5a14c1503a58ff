"""The detectors of FMS and TrustyAI."""

from collections.abc import Sequence
from typing import Any

from serve.api.context import AppContext
from serve.api.dialect import INPUT, TRUNCATE, Dialect
from serve.api.documented import classify_errors
from serve.api.json_encoding import short
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import Route
from serve.classifier.flagger import Found
from serve.dialects.guardrails.flagging import Flagged, flag_texts
from serve.dialects.guardrails.schemas import (
    Detection,
    DetectorError,
    DetectorRequest,
    GuardrailParameters,
)
from serve.errors import OfframpError


async def detect(context: AppContext, request: Request, body: DetectorRequest) -> Response:
    """Return what flags each text, in the form of FMS and TrustyAI detectors."""
    asked = body.detector_params or GuardrailParameters()

    def make(flagged: Flagged, found: list[list[Found]]) -> Any:
        flagged.check_complete(found)
        return [
            _detections(each, text, flagged.kind)
            for each, text in zip(found, body.contents, strict=True)
        ]

    return await flag_texts(context, request, asked, lambda _: body.contents, make)


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


def error_body(error: OfframpError, message: str) -> Any:
    """Return an error as the clients of guardrails read it."""
    return {"code": error.status, "message": message}


NAME = "guardrails"
OPTIONS: dict[str, Any] = {"tags": [NAME], "responses": classify_errors(DetectorError)}
# The way to have long texts looked at.
WINDOWS = '"windows": {"stride": 64, "combine": "any"}'

_OPTIONS = {**OPTIONS, "response_model": list[list[Detection]]}
_BELOW = "/api/v1/text/"

DETECTORS = Dialect(
    NAME,
    error_body,
    [
        Route(
            "POST",
            f"{_BELOW}contents",
            detect,
            "classify",
            DetectorRequest,
            documented=_OPTIONS,
        )
    ],
    below=_BELOW,
    words={INPUT: r"contents\1", TRUNCATE: WINDOWS},
)
