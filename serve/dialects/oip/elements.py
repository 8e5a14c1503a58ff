"""The elements of a BYTES tensor in its bytes: its length in four bytes, and then so many more."""

from typing import Final

from serve.errors import InvalidTensor

LENGTH_BYTES: Final = 4
_HOW: Final = "each element is its length, four bytes in little-endian order, and then its bytes"


def split(name: str, data: bytes, number: int) -> list[bytes]:
    """Return the elements of a tensor.

    Args:
        name: of the tensor.
        data: its bytes.
        number: of its elements.

    Raises:
        InvalidTensor: they are not so many elements.
    """
    elements, place = [], 0
    for i in range(number):
        begin = place + LENGTH_BYTES
        length = int.from_bytes(data[place:begin], "little")
        if begin + length > len(data):
            raise InvalidTensor(f"{name}[{i}]: {_fault(data, place, length)}; {_HOW}")
        place = begin + length
        elements.append(data[begin:place])
    if place < len(data):
        raise InvalidTensor(
            f"{name}: {len(data) - place} bytes are left after the last of {number} elements, "
            f"which ends at byte {place}; {_HOW}"
        )
    return elements


def _fault(data: bytes, place: int, length: int) -> str:
    """Say what of an element is wrong whose bytes end before it does."""
    found, left = data[place : place + LENGTH_BYTES], len(data) - place
    if left < LENGTH_BYTES:
        return f"has {left} bytes in the place of the four of its length"
    left -= LENGTH_BYTES
    fault = (
        f"its four bytes of length, {found.hex(' ')}, stand for {length}, but {left} bytes follow"
    )
    if int.from_bytes(found, "big") <= left:
        return f"{fault} (in big-endian order they stand for {int.from_bytes(found, 'big')})"
    if found.isascii() and found.decode().isprintable():
        return f"{fault} (they are the text {found.decode()!r}: is the length missing?)"
    return fault
