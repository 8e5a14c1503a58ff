"""How many elements the lists and maps of a message may have; counted before any is looked at."""

from typing import Any, Final, NamedTuple, Self

from google.protobuf.descriptor import Descriptor

from serve.api.json_decoding import MAX_FIELDS
from serve.api.schemas.inputs import MAX_LIST
from serve.dialects.oip.schemas import MAX_AXES, MAX_OUTPUTS
from serve.dialects.oip.signature import INPUTS
from serve.errors import InvalidTensor

# Of one tensor: as many tokens as a full queue takes.
MAX_NUMBERS: Final = 131_072
# By the name of the field, as many as in JSON; other fields hold numbers.
_MOST: Final = {
    "parameters": MAX_FIELDS,
    "inputs": len(INPUTS),
    "outputs": MAX_OUTPUTS,
    "raw_input_contents": len(INPUTS),
    "shape": MAX_AXES,
    "bytes_contents": MAX_LIST,
}


class Bounds(NamedTuple):
    """Bounds of a message's fields that repeat, and of the messages in its fields."""

    repeated: list[tuple[str, int, "Bounds | None"]]
    single: list[tuple[str, "Bounds"]]

    @classmethod
    def of(cls, message: Descriptor) -> Self:
        """Return the bounds of a type; one that contains itself has none."""
        bounds = cls([], [])
        for field in message.fields:
            inner = cls.of(field.message_type) if field.message_type else None
            of_elements = inner if inner and any(inner) else None
            if field.is_repeated:
                most = _MOST.get(field.name, MAX_NUMBERS)
                bounds.repeated.append((field.name, most, of_elements))
            elif of_elements:
                bounds.single.append((field.name, of_elements))
        return bounds

    def check(self, message: Any) -> None:
        """Refuse a message with more elements than any request needs.

        Raises:
            InvalidTensor: the error names the field.
        """
        for name, most, of_elements in self.repeated:
            elements = getattr(message, name)
            if (number := len(elements)) > most:
                raise InvalidTensor(f"{name}: must have at most {most} entries, not {number}")
            if of_elements:
                for each in elements:
                    of_elements.check(each)
        for name, inner in self.single:
            if message.HasField(name):
                inner.check(getattr(message, name))
