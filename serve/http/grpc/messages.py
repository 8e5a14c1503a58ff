"""The messages of our services, from the descriptors that protoc has made of `protos/`."""

from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from grpc_reflection.v1alpha import reflection_pb2

from serve.api.json_decoding import MAX_ELEMENTS, MAX_FIELDS
from serve.classifier.classify_request import MAX_LIST
from serve.dialects.oip.schemas import INPUTS, MAX_AXES, MAX_OUTPUTS
from serve.errors import InvalidTensor
from serve.http.grpc.status import MalformedMessage

INFERENCE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"
REFLECTION: Final = "grpc.reflection.v1alpha.ServerReflection"

# The most elements of a field, by its name, as many as in JSON; other fields hold the numbers of
# one tensor. Without bounds, a message of 2 MB may hold a million elements.
_MOST: Final = {
    "parameters": MAX_FIELDS,
    "inputs": len(INPUTS),
    "outputs": MAX_OUTPUTS,
    "raw_input_contents": len(INPUTS),
    "shape": MAX_AXES,
    "bytes_contents": MAX_LIST,
}
# A smaller message has too few elements to matter.
_FEW_BYTES: Final = 1024


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


def parse(request_type: Any, data: bytes) -> Any:
    """Return a message of this type.

    Raises:
        MalformedMessage: the bytes are none.
        InvalidTensor: a list or map in it has more elements than any request needs.
    """
    try:
        message = request_type.FromString(data)
    except DecodeError:
        name = request_type.DESCRIPTOR.full_name
        raise MalformedMessage(f"the message is no {name} in protobuf's encoding") from None
    if len(data) > _FEW_BYTES:
        _check_sizes(message)
    return message


def _check_sizes(message: Any) -> None:
    """Count the elements of each list and map before any of them is looked at."""
    for field, found in message.ListFields():
        if field.is_repeated:
            most = _MOST.get(field.name, MAX_ELEMENTS)
            if len(found) > most:
                raise InvalidTensor(f"{field.name}: must have at most {most} entries")
        inner = field.message_type
        if inner and not inner.GetOptions().map_entry:  # the values of maps hold no lists
            for each in found if field.is_repeated else (found,):
                _check_sizes(each)
