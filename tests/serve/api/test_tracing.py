"""Spans of real requests, kept in memory instead of being sent."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tritonclient.grpc import service_pb2, service_pb2_grpc

import serve.assembly
from serve.api.request import Headers, Request
from serve.logs import ACCESS_LOG
from serve.tracing import Tracing, configured_tracing
from tests.serve.support.live_server import serving_bundles, serving_grpc
from tests.serve.support.tables import SURE_TEXT, UNSURE_TEXT, add_table

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextmanager
def recorded(patch: pytest.MonkeyPatch) -> Iterator[dict[str, list[ReadableSpan]]]:
    """Fill in, at the end, the spans of what is served meanwhile by name, earliest first."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    patch.setattr(serve.assembly, "configured_tracing", lambda: Tracing(provider))
    spans: dict[str, list[ReadableSpan]] = {}
    yield spans
    for span in sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0):
        spans.setdefault(span.name, []).append(span)


def spans_of(
    bundle_folder: Path, patch: pytest.MonkeyPatch, *inputs: str
) -> dict[str, list[ReadableSpan]]:
    """Return the spans of one request by name, earliest first."""
    with recorded(patch) as spans, serving_bundles(bundle_folder) as server:
        server.http.headers["traceparent"] = PARENT
        assert server.http.get("/health/ready").status_code == 200
        body = {"inputs": list(inputs), "exit": {"rule": "layer", "layer": 2}}
        assert server.http.post("/v1/classify", json=body).status_code == 200
    return spans


def test_texts_that_leave_before_the_first_layer_were_in_no_queue(
    bundle_copy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = add_table(bundle_copy("tiny"))
    for texts, queued in (([SURE_TEXT], []), ([SURE_TEXT, UNSURE_TEXT], [1])):
        with recorded(monkeypatch) as spans, serving_bundles(folder) as server:
            server.http.headers["traceparent"] = PARENT
            server.answer(texts, exit={"rule": "layer", "layer": 2, "table": 0.8})
        rows = [(span.attributes or {})["offramp.rows"] for span in spans.get("queue", [])]
        assert rows == queued


def test_classifications_of_every_dialect_and_of_grpc_have_a_span(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded(monkeypatch) as spans, serving_grpc(bundle_folder) as server:
        server.http.headers["traceparent"] = PARENT
        assert server.http.post("/models/tiny", json={"inputs": "w1"}).status_code == 200
        assert server.http.post("/classify", json={"input": 1}).status_code == 400
        call = service_pb2.ModelInferRequest(model_name="tiny")
        tensor = call.inputs.add(name="TEXT", datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(b"w1")
        with grpc.insecure_channel(server.grpc_address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            stub.ModelInfer(call, metadata=[("traceparent", PARENT)])
    infer = "inference.GRPCInferenceService/ModelInfer"
    requests = [spans[name][0] for name in ("POST /models/{model}", "POST /classify", infer)]
    statuses = [(span.attributes or {})["http.response.status_code"] for span in requests]
    assert statuses == [200, 400, 200]
    assert (requests[1].attributes or {})["error.type"] == "invalid_request"
    assert {f"{s.parent.span_id:016x}" for s in requests if s.parent} == {PARENT.split("-")[2]}
    assert [span.parent for span in spans["tokenize"]] == [requests[0].context, requests[2].context]


@pytest.mark.parametrize("num_rows", [1, 3])
def test_request_has_spans_from_the_clients_trace_to_each_segment(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int
) -> None:
    spans = spans_of(bundle_folder, monkeypatch, *["w1 w2"] * num_rows)
    (request,), (tokenize,), (queue,) = (
        spans.pop(name) for name in ("POST /v1/classify", "tokenize", "queue")
    )
    segments = spans.pop("segment")
    assert not spans, "nothing else is traced"
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == PARENT.split("-")[2]
    times = [request.start_time]
    for span in (tokenize, queue, *segments):
        assert span.parent == request.context
        times += [span.start_time, span.end_time]
    assert [*times, request.end_time] == sorted([*times, request.end_time])
    assert queue.attributes == {"offramp.rows": num_rows}
    last = segments[-1].attributes
    assert last == {"offramp.layer": 2, "offramp.batch.rows": num_rows}


@pytest.mark.parametrize("given", [PARENT, "nonsense", None])
@pytest.mark.parametrize("body", [{"inputs": "w1"}, {"inputs": 1}], ids=["answered", "refused"])
def test_line_of_a_traced_request_has_the_trace_id_of_its_span(
    bundle_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    given: str | None,
    body: dict[str, object],
) -> None:
    with (
        recorded(monkeypatch) as spans,
        caplog.at_level(logging.INFO, ACCESS_LOG),
        serving_bundles(bundle_folder, access_log=True) as server,
    ):
        server.http.post("/v1/classify", json=body, headers={"traceparent": given} if given else {})
    [line] = [vars(r)["fields"] for r in caplog.records if r.name == ACCESS_LOG]
    [trace_id] = {span.context.trace_id for named in spans.values() for span in named}
    assert line["trace_id"] == f"{trace_id:032x}"


@pytest.mark.parametrize(
    ("given", "trace_id"),
    [
        ([PARENT], PARENT.split("-")[1]),
        ([f"01{PARENT[2:]}-later"], PARENT.split("-")[1]),
        ([f"{PARENT}-more"], ""),
        ([f"ff{PARENT[2:]}"], ""),
        ([PARENT.upper()], ""),
        ([PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32)], ""),
        ([PARENT.replace("b7ad6b7169203331", "0" * 16)], ""),
        ([PARENT[:-1]], ""),
        ([PARENT, PARENT], ""),
        ([], ""),
    ],
)
def test_trace_id_is_that_of_a_valid_traceparent(given: list[str], trace_id: str) -> None:
    headers = Headers([("traceparent", value) for value in given])
    assert Request(headers, "POST").trace_id == trace_id


def test_traces_are_sent_only_to_a_configured_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured_tracing() is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    tracing = configured_tracing()
    assert tracing
    assert tracing.provider.resource.attributes["service.name"] == "offramp"
    tracing.provider.shutdown()


def test_server_without_the_extra_warns_and_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert configured_tracing() is None
    assert "offramp[otel]" in caplog.text
