"""The parameters of a guardrail's request: in its body, and by the name of a detector."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from pydantic import Field

from serve.api.choices import followed_by, models_for
from serve.api.context import AppContext
from serve.api.dial import EXIT, Dial
from serve.api.request import Request
from serve.classifier.classifier import Classifier
from serve.errors import InvalidRequest, UnknownDetector
from serve.policy.document import DEFAULT

DETECTOR_ID: Final = "detector-id"


class GuardrailParameters(Dial):
    """Parameters of both kinds of guardrails; the fields are Offramp's own.

    Attributes:
        prefix: what the parameters' names begin with in messages: the field that holds them.
        reads_scores: whether the clients read scores and compare them with their own thresholds.
        of_several: the threshold of every label of a model of several, where there is no flag; None
            if such models are refused then too.
    """

    prefix: ClassVar[str] = "detector_params."
    reads_scores: ClassVar[bool] = True
    of_several: ClassVar[float | None] = None

    model: str | None = Field(default=None, description="As in /v1/classify.")
    profile: str | None = Field(default=None, description="A profile of the live policy.")
    exit: Any = Field(default=None, description="As in /v1/classify; instead of `profile`.")
    flag: Any = Field(default=None, description="As in /v1/classify. Default: the profile's.")
    threshold: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Takes the place of each threshold of the flag.",
    )
    windows: Any = Field(default=None, description="As in /v1/classify. Default: the profile's.")
    special_tokens: Any = Field(
        default=None, description="As in /v1/classify. Default: the profile's, or else `text`."
    )

    def check_model(self, classifier: Classifier) -> None:
        """Refuse a model whose answers the route has no form for.

        Raises:
            InvalidRequest: it is such a model.
        """


def with_detector(
    context: AppContext, request: Request, asked: GuardrailParameters
) -> tuple[GuardrailParameters, bool]:
    """Read the header that names the detector: one of a policy's, a model, or a profile.

    Returns:
        The parameters with the model and the profile that the name stands for, and whether a
        policy has chosen the profile.

    Raises:
        UnknownDetector: the name stands for nothing.
        InvalidRequest: it stands for several things, or contradicts the parameters.
    """
    detector = request.headers.get(DETECTOR_ID)
    if detector is None:
        return asked, False
    if DETECTOR_ID in request.headers.repeated:
        raise InvalidRequest(f"{DETECTOR_ID}: comes more than once; send one")
    return _stands_for(context, request, asked, detector)


def _stands_for(
    context: AppContext, request: Request, asked: GuardrailParameters, detector: str
) -> tuple[GuardrailParameters, bool]:
    models, named = models_for(context.catalog, request.client), context.catalog.found
    if of_alias := named.get(asked.model or ""):
        asked = asked.model_copy(update={"model": of_alias.name})
    asked_of = [each for each in models if asked.model in (None, each.name)]
    policies = {each.name: followed_by(request, each).entry.policy for each in models}
    request.arm = None  # it is known once the model is
    mapped = [each for each in asked_of if detector in policies[each.name].detectors]
    if len(mapped) > 1:
        names = " and ".join(each.name for each in mapped)
        raise InvalidRequest(
            f"{DETECTOR_ID}: {detector[:64]!r} is a detector of {names}; say which by "
            f"{asked.prefix}model"
        )
    if mapped:
        profile = policies[mapped[0].name].detectors[detector]
        if asked.exit is not None or EXIT in request.headers:
            place = f"{asked.prefix}exit" if asked.exit is not None else EXIT
            raise InvalidRequest(
                f"{place}: {DETECTOR_ID} stands for a profile of the policy; leave it out"
            )
        return _with(asked, model=mapped[0].name, profile=profile), profile != DEFAULT
    if by_name := [each for each in models if each is named.get(detector)]:
        return _with(asked, model=by_name[0].name), False
    if len(asked_of) == 1 and detector in policies[asked_of[0].name].profiles:
        return _with(asked, profile=detector), False
    _note_arm(request, asked_of, detector)
    raise UnknownDetector(
        f"{DETECTOR_ID}: {detector[:64]!r} is neither a detector, a model nor a profile of the "
        f"only model; models are {', '.join(policies)}. Put "
        '{"detectors": {NAME: PROFILE}} into the policy'
    )


def _note_arm(request: Request, asked_of: Sequence[Classifier], detector: str) -> None:
    """Let the arm count that it has no such detector, if it is known which model is meant."""
    if len(asked_of) > 1:
        asked_of = [each for each in asked_of if detector in _detectors_of_arms(each)]
    if len(asked_of) == 1:
        followed_by(request, asked_of[0])
        if detector not in asked_of[0].policy.current.policy.detectors:
            request.count_in_no_verdict()  # no policy is to blame


def _detectors_of_arms(classifier: Classifier) -> set[str]:
    live = classifier.policy.live
    arms = (live, live.candidate) if live.candidate else (live,)
    return {name for each in arms for name in each.entry.policy.detectors}


def _with(asked: GuardrailParameters, **named: str) -> GuardrailParameters:
    for name, value in named.items():
        if getattr(asked, name) not in (None, value):
            raise InvalidRequest(
                f"{asked.prefix}{name}: differs from what {DETECTOR_ID} stands for; send one"
            )
    if named.get("profile") == DEFAULT:
        named.pop("profile")
    return asked.model_copy(update=named)
