"""The header that names a detector."""

from typing import Final

from serve.api.context import AppContext
from serve.api.record import RequestRecord
from serve.dialects.guardrails.schemas import GuardrailParameters
from serve.errors import InvalidRequest, UnknownModel

DETECTOR_ID: Final = "detector-id"


def with_detector(
    context: AppContext, record: RequestRecord, asked: GuardrailParameters
) -> GuardrailParameters:
    """Read the header that names the detector: a model, or a profile of the only one."""
    detector = record.headers.get(DETECTOR_ID)
    if detector is None:
        return asked
    if DETECTOR_ID in record.headers.repeated:
        raise InvalidRequest(f"{DETECTOR_ID}: comes more than once; send one")
    models = [classifier.name for classifier in context.catalog]
    name = "model" if detector in models else "profile"
    if name == "profile":
        if asked.model is None and len(models) > 1:
            raise UnknownModel(
                f"{DETECTOR_ID}: no model {detector[:64]!r}; served are {', '.join(models)}"
            )
        classifier = context.catalog.pick(asked.model)
        if detector not in classifier.policy.current.policy.profiles:
            raise UnknownModel(
                f"{DETECTOR_ID}: {detector[:64]!r} is neither a model nor a profile of "
                f"{classifier.name}"
            )
    given = getattr(asked, name)
    if given is not None and given != detector:
        raise InvalidRequest(f"detector_params.{name}: differs from {DETECTOR_ID}; send one")
    return asked.model_copy(update={name: detector})
