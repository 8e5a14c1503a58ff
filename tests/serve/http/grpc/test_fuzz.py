"""Requests of every kind: each gets an answer or a refusal, and the server stays as it was."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tests.serve.http.grpc.conftest import asked, stub
from tests.serve.support.live_server import LiveServer

REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.PERMISSION_DENIED,
}
NAMES = st.sampled_from(
    ["TEXT", "TEXT_PAIR", "input_ids", "attention_mask", "token_type_ids", "", "é" * 5000]
)
SIZES = st.one_of(st.integers(-2, 4), st.sampled_from([2**31, 2**62, -(2**63)]))
ELEMENTS = st.one_of(st.binary(max_size=9), st.just(b"\x02\0\0\0w1"), st.just(b"w1"))
PARAMETERS = st.dictionaries(
    st.sampled_from(["exit", "timeout", "timeout_ms", "priority", "truncate", "other"]),
    st.one_of(
        st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(), st.just("{")
    ),
    max_size=2,
)


def set_parameters(held: Any, values: dict[str, Any]) -> None:
    kinds = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    for name, value in values.items():
        setattr(held[name], kinds[type(value)], value)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    request = service_pb2.ModelInferRequest(model_name=draw(st.sampled_from(["tiny", "", "x"])))
    set_parameters(request.parameters, draw(PARAMETERS))
    for name in draw(st.lists(NAMES, max_size=3)):
        datatype = draw(st.sampled_from(["BYTES", "INT64", "INT32", "FP32", "", "é" * 5000]))
        tensor = request.inputs.add(name=name, datatype=datatype)
        tensor.shape.extend(draw(st.lists(SIZES, max_size=3)))
        set_parameters(tensor.parameters, draw(PARAMETERS) if draw(st.booleans()) else {})
        tensor.contents.bytes_contents.extend(draw(st.lists(ELEMENTS, max_size=4)))
        tensor.contents.int64_contents.extend(draw(st.lists(st.integers(-9, 99), max_size=4)))
    if draw(st.booleans()):
        request.raw_input_contents.extend(draw(st.lists(ELEMENTS, max_size=3)))
        for tensor in request.inputs:
            tensor.ClearField("contents")
    for name in draw(st.lists(st.sampled_from(["label", "logits", "é" * 5000]), max_size=2)):
        output = request.outputs.add(name=name)
        if draw(st.booleans()):
            output.parameters["classification"].int64_param = draw(st.integers(-2, 2**62))
    return request


@pytest.fixture(scope="module")
def calls(server: LiveServer) -> Iterator[Any]:
    with stub(server.grpc_address) as made:
        yield made


def many_classes() -> Any:
    request = asked(["w1"])
    request.outputs.add(name="logits").parameters["classification"].int64_param = 2**62
    return request


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=requests())
@example(request=many_classes())
def test_no_request_is_an_internal_error(calls: Any, request: Any) -> None:
    called = calls.ModelInfer.future(request)
    if called.exception() is None:
        assert called.result().model_name == "tiny"
    else:
        assert called.code() in REFUSALS, called
        assert called.details()
