"""The wire: messages are Triton's, descriptors those of the protos, and every list is bounded."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from grpc_health.v1 import health_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

from serve.api.json_decoding import MAX_ELEMENTS
from serve.classifier.classify_request import MAX_LIST
from serve.errors import InvalidTensor
from serve.http.grpc import messages
from serve.http.grpc.messages import HEALTH, INFERENCE, POOL, parse, types_of
from tests.serve.http.grpc.conftest import failure
from tests.serve.support.live_server import LiveServer

PROTOS = Path(messages.__file__).with_name("protos")


def test_descriptors_are_those_of_the_proto_files(tmp_path: Path) -> None:
    made = tmp_path / "descriptors.binpb"
    names = sorted(path.name for path in PROTOS.glob("*.proto"))
    command = ["-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={made}", *names]
    subprocess.run([sys.executable, *command], cwd=PROTOS, check=True)
    assert made.read_bytes() == (PROTOS / "descriptors.binpb").read_bytes()


def fields(message: Descriptor) -> dict[str, Any]:
    return {
        field.name: (
            field.number,
            field.type,
            field.is_repeated,
            field.message_type and field.message_type.full_name,
            field.containing_oneof and field.containing_oneof.name,
        )
        for field in message.fields
    }


@pytest.mark.parametrize(
    ("file", "theirs"),
    [
        ("open_inference.proto", (service_pb2.DESCRIPTOR, model_config_pb2.DESCRIPTOR)),
        ("health.proto", (health_pb2.DESCRIPTOR,)),
    ],
)
def test_every_field_is_that_of_the_client(file: str, theirs: tuple[Any, ...]) -> None:
    compared = 0
    by_name = {n: m for each in theirs for n, m in each.message_types_by_name.items()}
    pairs = [(m, by_name[n]) for n, m in POOL.FindFileByName(file).message_types_by_name.items()]
    while pairs:
        own, client = pairs.pop()
        assert fields(own).items() <= fields(client).items()
        compared += len(own.fields)
        pairs += [(m, client.nested_types_by_name[m.name]) for m in own.nested_types]
    assert compared


@pytest.mark.parametrize(
    ("service", "theirs"), [(INFERENCE, service_pb2.DESCRIPTOR), (HEALTH, health_pb2.DESCRIPTOR)]
)
def test_every_method_is_that_of_the_client(service: str, theirs: Any) -> None:
    client = theirs.services_by_name[service.rpartition(".")[2]].methods_by_name
    for name, method in POOL.FindServiceByName(service).methods_by_name.items():
        for own, other in (
            (method.input_type, client[name].input_type),
            (method.output_type, client[name].output_type),
        ):
            assert own.full_name == other.full_name
        assert method.server_streaming == client[name].server_streaming


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
    with pytest.raises(InvalidTensor, match=f"^{place[-1].name}: "):
        parse(request_type, data)


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x0a\x04tiny" + b"\x32\x00" * 1_000_000])
def test_bytes_that_are_no_message_or_too_many_elements_are_refused(
    server: LiveServer, data: bytes
) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.unary_unary(f"/{INFERENCE}/ModelInfer")
        assert failure(call, data)[0] is grpc.StatusCode.INVALID_ARGUMENT
