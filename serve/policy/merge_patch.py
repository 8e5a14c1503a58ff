"""JSON merge patches (RFC 7396)."""

from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:
    """Return a document with a patch applied: null deletes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def deeper_than(document: Any, most: int) -> bool:
    """Tell whether objects and lists are nested in each other more than so many times."""
    level = [document]
    for _ in range(most):
        level = [inner for outer in level for inner in _inner(outer)]
    return any(isinstance(each, dict | list) for each in level)


def _inner(outer: Any) -> list[Any]:
    if isinstance(outer, dict):
        return list(outer.values())
    return outer if isinstance(outer, list) else []
