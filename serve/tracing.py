"""OpenTelemetry traces of classifications, where an endpoint for them is configured.

FastAPI makes the span of the request, a child of the one that its `traceparent` names. Its parts
come from here: tokenization, the wait in the queue, and every segment run.
"""

import logging
import math
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from serve.classifier.request import ModelRequest
from serve.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
TRACED_PATH = "/v1/classify"


class Tracing:
    """Makes spans of what requests say about themselves."""

    def __init__(self, provider: "TracerProvider") -> None:
        self.provider = provider
        self._tracer = provider.get_tracer("offramp", __version__)

    def trace_id(self) -> str:
        """Return the id of the trace that is current; empty if there is none."""
        from opentelemetry.trace import get_current_span

        found = get_current_span().get_span_context()
        return f"{found.trace_id:032x}" if found.is_valid else ""

    def record(self, request: ModelRequest, exit_layers: Sequence[int]) -> None:
        """Add the spans of a request that has ended to its own, which must be the current one."""
        wall = time.time_ns() - time.monotonic_ns()
        if request.tokenized:
            self._add("tokenize", request.tokenized, wall, {})
        if not request.rows:
            return
        left_queue_s = max(row.started_s for row in request.rows)
        if any(math.isnan(row.started_s) for row in request.rows):
            left_queue_s = time.monotonic()  # refused while it waited
        num_rows = {"offramp.rows": len(request.rows)}
        self._add("queue", (request.rows[0].admitted_s, left_queue_s), wall, num_rows)
        # Rows that were in one batch share the record of its run.
        for run in dict.fromkeys(run for row in request.rows for run in row.segment_trace or ()):
            attributes = {
                "offramp.layer": exit_layers[run.exit_index],
                "offramp.batch.rows": run.num_rows,
            }
            self._add("segment", (run.began_s, run.ended_s), wall, attributes)

    def _add(
        self, name: str, times_s: tuple[float, float], wall: int, attributes: dict[str, Any]
    ) -> None:
        began, ended = (wall + int(s * 1e9) for s in times_s)
        self._tracer.start_span(name, attributes=attributes, start_time=began).end(ended)


def configured_tracing() -> Tracing | None:
    """Return what exports to the endpoint that the environment names; None if it names none.

    Operators of clusters set such variables for all programs, so without the extra `otel` the
    server warns, and serves.
    """
    if not any(map(os.environ.get, _ENDPOINTS)):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        log.warning("no traces: %s is missing; pip install 'offramp[otel]'", error.name)
        return None
    name = os.environ.get("OTEL_SERVICE_NAME", "offramp")
    resource = Resource.create({"service.name": name, "service.version": __version__})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)


def telemetry(tracing: Tracing | None) -> dict[str, Any]:
    """Return FastAPI's settings: spans of classifications, and nothing else by itself."""
    return {
        "tracing": tracing is not None,
        "tracer_provider": tracing.provider if tracing else None,
        "exclude": lambda scope: scope["path"] != TRACED_PATH,
        "operation_spans": False,
        "metrics": False,
        "logs": False,
        "auto_configure": False,
    }
