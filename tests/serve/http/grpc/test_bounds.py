"""Every list and map of a request has a bound, and is counted before its elements are looked at."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from serve.api.json_decoding import MAX_ELEMENTS
from serve.api.schemas.inputs import MAX_LIST
from serve.errors import InvalidTensor
from serve.http.grpc.call import parse
from serve.http.grpc.messages import HEALTH, INFERENCE, POOL, types_of
from tests.serve.http.grpc.conftest import failure
from tests.serve.support.live_server import LiveServer

Place = tuple[FieldDescriptor, ...]


def places(message: Descriptor, way: Place = ()) -> Iterator[Place]:
    """Return the way to every field that repeats, through the messages that it is in."""
    for field in message.fields:
        inner = field.message_type
        if field.is_repeated:
            yield (*way, field)
        if inner and not inner.GetOptions().map_entry:
            yield from places(inner, (*way, field))


REPEATED = [
    pytest.param(service, method.name, place, id=f"{method.name}.{'.'.join(f.name for f in place)}")
    for service in (INFERENCE, HEALTH)
    for method in POOL.FindServiceByName(service).methods
    for place in places(method.input_type)
]


def full(message: Any, place: Place) -> Any:
    """Return a message with more elements at a place than any request needs."""
    *way, last = place
    at = message
    for field in way:
        inner = getattr(at, field.name)
        at = inner.add() if field.is_repeated else inner
        at.SetInParent()
    elements = getattr(at, last.name)
    if last.message_type is None:
        is_bytes = last.type == FieldDescriptor.TYPE_BYTES
        elements.extend([b""] * (MAX_LIST + 1) if is_bytes else [0] * (MAX_ELEMENTS + 1))
    elif last.message_type.GetOptions().map_entry:
        for i in range(MAX_LIST):
            elements[str(i)].SetInParent()
    else:
        for _ in range(MAX_LIST):
            elements.add()
    return message


@pytest.mark.parametrize(("service", "method", "place"), REPEATED)
def test_a_full_field_is_refused_by_its_length(service: str, method: str, place: Place) -> None:
    request_type, _ = types_of(service, method)
    data = full(request_type(), place).SerializeToString()
    with pytest.raises(InvalidTensor, match=f"^{place[-1].name}: must have at most"):
        parse(request_type, data)


def test_a_million_outputs_are_refused(server: LiveServer) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        code, details = failure(call, b"\x0a\x04tiny" + b"\x32\x00" * 1_000_000)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details["message"] == "outputs: must have at most 16 entries, not 1000000"
