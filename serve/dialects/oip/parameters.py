"""The dial between speed and certainty in the parameters of a request, and what came of it."""

from collections.abc import Mapping
from typing import Any, Final

from serve.api.classification import Classification
from serve.api.dial import read_degrade, read_exit
from serve.dialects.oip.tensors import quoted
from serve.errors import InvalidTensor

# Triton's are numbers: 1 is the highest level, and 0 asks for the default one.
PRIORITIES: Final = {0: None, 1: "high", 2: "normal", 3: "low"}

_KNOWN: Final = ("exit", "timeout", "timeout_ms", "priority", "truncate", "degrade")
# What messages call the fields of a `ClassifyRequest`.
NAMES: Final = {
    "exit": "parameters.exit",
    "timeout_ms": "parameters.timeout (in microseconds) or timeout_ms",
    "priority": "parameters.priority",
    "truncate": "parameters.truncate",
    "degrade": "parameters.degrade",
}


def dial_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `ClassifyRequest` that parameters ask for.

    Args:
        parameters: `exit` (a profile's name or JSON), `timeout` (microseconds, 0 for none) or
            `timeout_ms`, `priority` (0 to 3, or a word), `truncate`, `degrade` (false or JSON).

    Raises:
        InvalidRequest: a parameter is unknown or cannot be read.
    """
    unknown = [name for name in parameters if name not in _KNOWN]
    if unknown:
        raise InvalidTensor(
            f"parameters: there is no {quoted(unknown[0])}; there are {', '.join(_KNOWN)}"
        )
    fields: dict[str, Any] = {"truncate": parameters.get("truncate")}
    wanted = parameters.get("exit")
    fields["exit"] = read_exit(wanted, NAMES["exit"]) if isinstance(wanted, str) else wanted
    moved = parameters.get("degrade")
    fields["degrade"] = read_degrade(moved, NAMES["degrade"]) if isinstance(moved, str) else moved
    fields["timeout_ms"] = _timeout_ms(parameters)
    fields["priority"] = _priority(parameters.get("priority"))
    return fields


def answer_parameters(answered: Classification) -> dict[str, Any]:
    """Return the parameters of an answer; what is an object is JSON in a text."""
    found: dict[str, Any] = {
        "policy_version": answered.classified.policy_version,
        "score_scale": answered.classifier.scores.score_scale,
    }
    if resolution := answered.classified.resolution:
        found["exit_rule"] = resolution.texts["exit_rule"]
        found["certificate"] = resolution.texts["certificate"]
    if answered.arm:
        found["arm"] = answered.arm
    if degraded := answered.classified.degraded:
        found |= {"degraded": True, "degraded_by": ",".join(degraded)}
    return found


def _timeout_ms(parameters: Mapping[str, Any]) -> Any:
    micros = parameters.get("timeout")
    if micros is None:
        return parameters.get("timeout_ms")
    if "timeout_ms" in parameters:
        raise InvalidTensor("parameters: send timeout, which is in microseconds, or timeout_ms")
    if type(micros) is not int or not 0 <= micros < 2**63:
        raise InvalidTensor("parameters.timeout: must be a whole number of microseconds")
    return micros / 1000 if micros else None


def _priority(given: Any) -> Any:
    if given is None or isinstance(given, str):
        return given
    if type(given) is not int or given not in PRIORITIES:
        raise InvalidTensor(
            "parameters.priority: must be 1 (high), 2 (normal), 3 (low) or 0 for the default, "
            "which is 2"
        )
    return PRIORITIES[given]
