"""OpenTelemetry traces of classifications, where an endpoint for them is configured.

A request's span is a child of the span that its `traceparent` names. Its parts are tokenization,
the wait in the queue, and every segment run.
"""

import logging
import math
import os
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from serve.classifier.classification import Classification
from serve.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracing:
    """Makes spans of requests."""

    def __init__(self, provider: "TracerProvider") -> None:
        self.provider = provider
        self._tracer = provider.get_tracer("offramp", __version__)

    def begin(self, method: str, route: str, headers: Mapping[str, str]) -> "Span":
        """Begin the span of a request that has just come."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        name = f"{method} {route}"
        attributes = {"http.request.method": method, "http.route": route}
        if method == "GRPC":
            name = route.removeprefix("/")
            attributes = {"rpc.system": "grpc", "rpc.method": name}
        return self._tracer.start_span(name, extract(headers), SpanKind.SERVER, attributes)

    def end(self, span: "Span", status: int, error_code: str) -> None:
        """End the span of a request that was answered with this status, or was given up."""
        from opentelemetry.trace import StatusCode

        span.set_attribute("http.response.status_code", status)
        if error_code:
            span.set_attribute("error.type", error_code)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            span.set_status(StatusCode.ERROR)
        span.end()

    def record(self, span: "Span", request: Classification) -> None:
        """Add what a model has done to the span of its request."""
        from opentelemetry.trace import set_span_in_context

        wall, parent = time.time_ns() - time.monotonic_ns(), set_span_in_context(span)

        def add(name: str, times_s: tuple[float, float], attributes: dict[str, Any]) -> None:
            began, ended = (wall + int(s * 1e9) for s in times_s)
            part = self._tracer.start_span(name, parent, attributes=attributes, start_time=began)
            part.end(ended)

        if request.tokenized:
            add("tokenize", request.tokenized, {})
        # Texts that left before the first layer were in no queue.
        rows = [row for row in request.rows if not math.isnan(row.admitted_s)]
        if not rows:
            return
        left_queue_s = max(row.started_s for row in rows)
        if any(math.isnan(row.started_s) for row in rows):
            left_queue_s = time.monotonic()  # refused while it waited
        add("queue", (rows[0].admitted_s, left_queue_s), {"offramp.rows": len(rows)})
        # Rows that were in one batch share the record of its run.
        traits = request.classifier.traits
        for run in dict.fromkeys(run for row in rows for run in row.segment_trace or ()):
            attributes = {
                "offramp.layer": traits.layer_of(run.exit_index),
                "offramp.batch.rows": run.num_rows,
            }
            if own := traits.small_layer(run.exit_index):
                attributes["offramp.small_layer"] = own
            add("segment", (run.began_s, run.ended_s), attributes)


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
