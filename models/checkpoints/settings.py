"""What a checkpoint's config says of how it wants to be used."""

from typing import Any

from pydantic import ValidationError

from models.checkpoints.checkpoint import RawCheckpoint
from serve.errors import InvalidRule
from serve.rules import EXIT_RULE, ExitRule


def stated(raw: RawCheckpoint, *keys: str) -> dict[str, Any]:
    """Return those of these settings that the config has."""
    return {key: raw.config[key] for key in keys if raw.config.get(key) is not None}


def state_rule(**fields: Any) -> ExitRule | None:
    """Return the exit rule with these settings; None if one is missing or not to be followed.

    Originals write "off" in their own ways (threshold -1, patience 0); none is a rule.
    """
    if any(value is None for value in fields.values()):
        return None
    try:
        return EXIT_RULE.validate_python(fields)
    except (ValidationError, InvalidRule):
        return None
