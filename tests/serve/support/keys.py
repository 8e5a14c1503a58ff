"""Keys of a server that asks for them."""

from pathlib import Path
from typing import Any

from serve.access.keys import Key, KeyLimits, Scope, new_key


def make_key(folder: Path, *scopes: Scope, name: str = "", **given: Any) -> str:
    """Add a key to a folder's `keys.json` and return its secret.

    Args:
        folder: of the file.
        scopes: at least one.
        name: that of the first scope by default.
        given: other fields of `Key`, and those of its limits.
    """
    limits = {field: given.pop(field) for field in given.keys() & KeyLimits.model_fields.keys()}
    fields = {"name": name or scopes[0], "sha256": "0" * 64, "scopes": scopes, "limits": limits}
    return new_key(Key.model_validate(fields | given), folder / "keys.json")
