"""Rules in a few words."""

from serve.rules import ExitRule

# How a rule's number is compared.
_COMPARED = {
    "entropy": "<",
    "normalized_entropy": "<",
    "confidence": ">=",
    "margin": ">",
    "learned": "<",
}
_NAMES = {"learned": "predicted error", "normalized_entropy": "normalized entropy"}


def rule_text(rule: ExitRule) -> str:
    """Return a rule as `entropy < 0.2`, with further settings behind it."""
    fields = rule.model_dump(exclude_none=True, exclude_defaults=True)
    kind = rule.rule
    words = [_NAMES.get(kind, kind.replace("_", " "))]
    threshold = fields.pop("threshold", None)
    if threshold is not None:
        words.append(f"{_COMPARED.get(kind, 'at')} {_number(threshold)}")
    for name, value in fields.items():
        words.append(_number(value) if name == kind else f"{name} {_number(value)}")
    return " ".join(words)


def _number(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_number, value))})"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
