"""Changes of documents: merge patches, and what a change of a policy has changed."""

from typing import Any

from serve.policy.document import Policy, host_of
from serve.policy.entry import VersionedPolicy
from serve.validation import place_of


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


def change_line(model: str, old: VersionedPolicy, new: VersionedPolicy) -> dict[str, Any]:
    """Return what a log line says of a change that was made.

    Of a rollout that starts, the changes are those that its candidate would make.
    """
    starts = new.running if not old.running else None
    becomes = starts.candidate if starts else new.policy
    line: dict[str, Any] = {
        "model": model,
        "source": new.source,
        "by": new.by,
        "action": new.action,
        "why": new.why,
        "from_version": old.version,
        "to_version": new.version,
        "changes": without_secrets(changes(old.policy, becomes)),
    }
    if new.rollout:
        line |= {"rollout": new.rollout.state, "percent": new.rollout.percent}
    return line


def without_secrets(found: dict[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Return changes for the log, in which no path of a webhook may stand."""
    return {
        place: (_masked(old, place), _masked(new, place)) for place, (old, new) in found.items()
    }


def _masked(value: Any, place: str) -> Any:
    if place == "guard.webhook" and isinstance(value, str):
        return host_of(value)
    if place == "guard" and isinstance(value, dict):
        return {name: _masked(inner, f"guard.{name}") for name, inner in value.items()}
    return value


def changes(old: Policy, new: Policy) -> dict[str, tuple[Any, Any]]:
    """Return old and new value of every field in which two policies differ."""
    before, after = (p.model_dump(mode="json", exclude_none=True) for p in (old, new))
    return difference(before, after)


def difference(old: Any, new: Any, place: str = "") -> dict[str, tuple[Any, Any]]:
    """Return old and new value by place, such as `profiles.fast.threshold`.

    A value that one of the two documents lacks is None there.
    """
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return {} if old == new else {place: (old, new)}
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted(old.keys() | new.keys()):
        inner = f"{place}.{place_of(name)}" if place else place_of(name)
        found |= difference(old.get(name), new.get(name), inner)
    return found
