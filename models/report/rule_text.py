"""Rules in a few words."""

import math

from serve.rules import ExitRule

# How a rule's number is compared.
_COMPARED = {
    "entropy": "<",
    "normalized_entropy": "<",
    "confidence": ">=",
    "margin": ">",
    "learned": "<",
}
_NEARLY_ONE = 0.9
_SETTINGS = {"min_layer": "from layer", "max_layer": "to layer"}
_NAMES = {"learned": "predicted error", "normalized_entropy": "normalized entropy"}


def rule_text(rule: ExitRule) -> str:
    """Return a rule as `entropy < 0.2`, with further settings behind it."""
    fields = rule.model_dump(exclude_none=True, exclude_defaults=True)
    kind = rule.rule
    words = [_NAMES.get(kind, kind.replace("_", " "))]
    if kind in fields:
        words.append(_number(fields.pop(kind)))
    if "threshold" in fields:
        words.append(f"{_COMPARED.get(kind, 'at')} {_number(fields.pop('threshold'))}")
    words += [f"{_SETTINGS.get(name, name)} {_number(v)}" for name, v in fields.items()]
    return " ".join(words)


def _number(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_number, value))})"
    if not isinstance(value, float):
        return str(value)
    if _NEARLY_ONE < value < 1:
        # Three digits of what is missing: 0.9999 and 0.99999 are different rules.
        return f"{value:.{2 - math.floor(math.log10(1 - value))}f}".rstrip("0")
    return f"{value:.3g}"
