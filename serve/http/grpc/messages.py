"""The messages of our services, from the descriptors that protoc has made of `protos/`."""

from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from grpc_reflection.v1alpha import reflection_pb2

INFERENCE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"
REFLECTION: Final = "grpc.reflection.v1alpha.ServerReflection"


def _filled_pool() -> descriptor_pool.DescriptorPool:
    """Return a pool of our own: a client in the same process has messages of the same names."""
    pool = descriptor_pool.DescriptorPool()
    data = files(__package__).joinpath("protos/descriptors.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    pool.AddSerializedFile(reflection_pb2.DESCRIPTOR.serialized_pb)
    return pool


POOL: Final = _filled_pool()


def message_class(name: str) -> Any:
    """Return the class of a message, such as `inference.ModelInferRequest`."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))


def types_of(service: str, method: str) -> tuple[type[Message], type[Message]]:
    """Return the classes of a method's request and answer."""
    found = POOL.FindServiceByName(service).methods_by_name[method]
    request, answer = (
        message_factory.GetMessageClass(each) for each in (found.input_type, found.output_type)
    )
    return request, answer
