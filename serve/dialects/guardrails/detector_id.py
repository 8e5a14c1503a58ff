"""The header that names a detector, as the FMS orchestrator sends it."""

from collections.abc import Iterable
from typing import Final

from serve.api.context import AppContext
from serve.api.record import RequestRecord
from serve.classifier.classifier import Classifier
from serve.dialects.guardrails.schemas import GuardrailParameters
from serve.errors import InvalidRequest, UnknownModel
from serve.policy.document import DEFAULT

DETECTOR_ID: Final = "detector-id"


def with_detector(
    context: AppContext, record: RequestRecord, asked: GuardrailParameters
) -> tuple[GuardrailParameters, bool]:
    """Read the header that names the detector: one of a policy's, a model, or a profile.

    Returns:
        The parameters with the model and the profile that the name stands for, and whether a
        policy has chosen the profile.

    Raises:
        UnknownModel: the name stands for nothing.
        InvalidRequest: it stands for several things, or contradicts the parameters.
    """
    detector = record.headers.get(DETECTOR_ID)
    if detector is None:
        return asked, False
    if DETECTOR_ID in record.headers.repeated:
        raise InvalidRequest(f"{DETECTOR_ID}: comes more than once; send one")
    models = [each for each in context.catalog if asked.model in (None, each.name)]
    mapped = [each for each in models if detector in _detectors(each)]
    if len(mapped) > 1:
        names = " and ".join(each.name for each in mapped)
        raise InvalidRequest(
            f"{DETECTOR_ID}: {detector[:64]!r} is a detector of {names}; say which by "
            f"{asked.place}.model"
        )
    if mapped:
        profile = _detectors(mapped[0])[detector]
        if asked.exit is not None:
            raise InvalidRequest(
                f"{asked.place}.exit: {DETECTOR_ID} stands for a profile of the policy; leave "
                "exit out"
            )
        return _with(asked, model=mapped[0].name, profile=profile), profile != DEFAULT
    if any(detector == each.name for each in context.catalog):
        return _with(asked, model=detector), False
    if len(models) == 1 and detector in models[0].policy.current.policy.profiles:
        return _with(asked, profile=detector), False
    raise UnknownModel(_unknown(context, detector))


def _detectors(classifier: Classifier) -> dict[str, str]:
    return classifier.policy.current.policy.detectors


def _with(asked: GuardrailParameters, **named: str) -> GuardrailParameters:
    for name, value in named.items():
        if getattr(asked, name) not in (None, value):
            raise InvalidRequest(
                f"{asked.place}.{name}: differs from what {DETECTOR_ID} stands for; send one"
            )
    if named.get("profile") == DEFAULT:
        named.pop("profile")
    return asked.model_copy(update=named)


def _unknown(context: AppContext, detector: str) -> str:
    found = [
        f"{each.name} (detectors {_listed(_detectors(each))}; profiles "
        f"{_listed(each.policy.current.policy.profiles)})"
        for each in context.catalog
    ]
    return (
        f"{DETECTOR_ID}: {detector[:64]!r} is neither a detector, a model nor a profile of the "
        f'only model; there are {", ".join(found)}. Put {{"detectors": {{NAME: PROFILE}}}} into '
        "the policy"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
