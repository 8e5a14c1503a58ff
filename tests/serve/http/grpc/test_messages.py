"""The wire: our messages are Triton's, and the committed descriptors are those of the protos."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from grpc_health.v1 import health_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

from serve.http.grpc import messages
from serve.http.grpc.messages import HEALTH, INFERENCE, POOL

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
