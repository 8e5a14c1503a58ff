"""JSON of long answers, written so that other threads have their turn."""

from json import JSONEncoder
from typing import Any, Final

# As `starlette.responses.JSONResponse` writes it.
_encode: Final = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def written(fields: dict[str, Any]) -> bytes:
    """Return an object as JSON; where a field is a list, it is encoded element by element.

    The encoder keeps Python's lock for as long as it works, for 14 MB half a second.

    Raises:
        ValueError: a number is infinite or none.
    """
    parts = [f"{_encode(name)}:{_field(value)}" for name, value in fields.items()]
    return f"{{{','.join(parts)}}}".encode()


def _field(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join([_encode(element) for element in value])}]"
    return _encode(value)
