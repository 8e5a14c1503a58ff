"""What a change of a policy has changed."""

from typing import Any


def difference(old: Any, new: Any, place: str = "") -> dict[str, tuple[Any, Any]]:
    """Return old and new value by place, such as `profiles.fast.threshold`.

    A value that one of the two documents lacks is None there.
    """
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return {} if old == new else {place: (old, new)}
    changes: dict[str, tuple[Any, Any]] = {}
    for name in sorted(old.keys() | new.keys()):
        inner = f"{place}.{name}" if place else name
        changes |= difference(old.get(name), new.get(name), inner)
    return changes
