"""Both guardrails classify texts under a flag, which decides about each text."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from serve.api.choices import Locks, bound, model_for, note_own_choice, undecided
from serve.api.classify import read_fields, respond
from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response
from serve.api.schemas import ResponseModel
from serve.api.shown import DEFERRED, MAX_LISTED, exit_headers, to_json
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.classifier.classify_request import ClassifyRequest
from serve.classifier.flagger import FlaggedBy
from serve.dialects.guardrails.parameters import GuardrailParameters, with_detector
from serve.errors import InvalidRequest, NoFlag, OfframpError
from serve.policy.flag import AnyFlag, thresholds, with_threshold
from serve.policy.profile import Windows
from serve.rules.criterion import Reason
from serve.rules.traits import flaggable

# A blank text is classified as this one, so that the other texts keep their places, and settings
# are checked where all texts are blank.
_IN_PLACE_OF_BLANK = "none"


class Flagged(NamedTuple):
    """Texts that have been classified under a flag.

    Attributes:
        blank: whether each text is whitespace alone; such a text is never flagged.
        answered: the answers.
        least: the score from which on a text is known to be flagged.
    """

    blank: Sequence[bool]
    answered: Classification
    least: float = 0.0

    @property
    def kind(self) -> str:
        """The name that detectors have for the model's task."""
        return _KINDS[self.answered.classifier.traits.task]

    def found(self) -> list[list[FlaggedBy]]:
        """Return what flags each text."""
        answered, flagger = self.answered, self.answered.flagger
        assert flagger is not None
        # There is one answer more than texts where there are no texts.
        answers = zip(self.blank, answered.answers, answered.tokens, strict=False)
        return [[] if blank else flagger.found(answer, tokens) for blank, answer, tokens in answers]

    def deferred(self) -> list[bool]:
        """Tell of each text whether it is deferred: empty where the flag defers no text."""
        answered, flagger = self.answered, self.answered.flagger
        if flagger is None or not flagger.defer:
            return []
        answers = zip(self.blank, answered.answers, answered.tokens, strict=False)
        return [not b and bool(flagger.defers(answer, tokens)) for b, answer, tokens in answers]

    def check_complete(self, found: Sequence[Sequence[FlaggedBy]]) -> None:
        """Refuse to call a text unflagged whose deadline has cut its classification short.

        Raises:
            DeadlineExceeded: there is such a text.
        """
        answers = zip(self.blank, found, self.answered.answers, strict=False)
        for blank, flags, answer in answers:
            if blank or answer.reason is not Reason.DEADLINE:
                continue
            if all(each.score < self.least for each in flags):
                raise undecided()


# Makes JSON of what flags each text.
Make = Callable[[Flagged, list[list[FlaggedBy]]], Any]


async def flag_texts(
    context: AppContext,
    request: Request,
    parameters: GuardrailParameters,
    texts_of: Callable[[Locks], Sequence[str]],
    make: Make,
) -> Response:
    """Answer a request for texts under the flag of the request or its profile.

    The headers may name the detector and hold the dial.

    Args:
        context: the models and what goes with them.
        request: the request that has come.
        parameters: the guardrail's parameters in the request.
        texts_of: reads the texts; the locks say what else may pass unchecked.
        make: writes the answer.

    Raises:
        OfframpError: the request is refused, or there is no flag.
    """
    parameters, assigned = with_detector(context, request, parameters)
    classifier = model_for(context.catalog, request.client, parameters.model)
    request.model, prefix = classifier.name, parameters.prefix
    parameters.check_model(classifier)
    names = {name: f"{prefix}{name}" for name in type(parameters).model_fields}
    fields = {n: v for n, v in dict(parameters).items() if n in ClassifyRequest.model_fields}
    fields["inputs"] = _IN_PLACE_OF_BLANK
    if parameters.profile is not None:
        if parameters.exit is not None:
            raise InvalidRequest(f"{prefix}profile: comes with exit; send one of the two")
        fields["exit"] = {"profile": parameters.profile}
    asked = bound(request.client, read_fields(fields, request.headers, names))
    note_own_choice(request, classifier, asked, assigned)
    locks = Locks(request, classifier, asked, True, assigned)
    locks.check(asked)
    flag, least = _flag(request, classifier, locks, asked, parameters)
    texts = texts_of(locks)
    blank = [not text.strip() for text in texts]
    inputs = [_IN_PLACE_OF_BLANK if b else t for b, t in zip(blank, texts, strict=True)]
    windows = _windows(asked.windows or locks.settings.windows, flag, least)
    update = {
        "inputs": inputs or [_IN_PLACE_OF_BLANK],
        "windows": windows,
        "special_tokens": asked.special_tokens or locks.special_tokens,
    }

    def write(answered: Classification) -> Response:
        flagged = Flagged(blank, answered, least)
        headers = exit_headers(answered)
        if deferred := flagged.deferred():
            headers[DEFERRED] = ",".join([str(each).lower() for each in deferred[:MAX_LISTED]])
        return Response(to_json(make(flagged, flagged.found())), headers)

    asked = asked.model_copy(update=update)
    return await respond(context, request, asked, write, flag, assigned)


# In detectors, `detection` names what a model does and `detection_type` its label.
_KINDS = {
    "single_label": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
    "token": "token_classification",
}


def _flag(
    request: Request,
    classifier: Classifier,
    locks: Locks,
    asked: ClassifyRequest,
    parameters: GuardrailParameters,
) -> tuple[AnyFlag, float]:
    """Return the flag of a request, and the score from which on a text is known to be flagged.

    The flag is the request's own, or else its profile's. Without one, clients that read scores get
    them all.

    Raises:
        NoFlag: there is none.
        OfframpError: the threshold of the request would raise one that is locked.
    """
    flag, threshold = asked.flag or locks.settings.flag, parameters.threshold
    if flag is None:
        if parameters.of_several is not None and classifier.traits.task == "multi_label":
            bound = parameters.of_several if threshold is None else threshold
            return dict.fromkeys(classifier.traits.labels, bound), 0.0
        if not parameters.reads_scores:
            if not classifier.policy.live.applied.has_flag:
                request.count_in_no_verdict()  # no candidate has taken the flag away
            raise NoFlag(_no_flag(classifier.name, parameters.prefix))
        # A locked threshold is the client's own, which compares the scores itself.
        bound = 0.0 if threshold is None or locks.keeps("flag") else threshold
        least = math.inf if threshold is None else threshold
        return dict.fromkeys(flaggable(classifier.traits), bound), least
    if threshold is None:
        return flag, 0.0
    if not locks.keeps("flag"):
        return with_threshold(flag, threshold), 0.0
    if not parameters.reads_scores and threshold > min(thresholds(flag).values()):
        locks.refuse("threshold", "flag")
    return with_threshold(flag, threshold, lower_only=True), threshold


def _windows(windows: Windows | None, flag: AnyFlag, least: float) -> Windows | None:
    """Return how long texts are cut: no window ends the work that the client may not count."""
    if windows and windows.combine == "any" and least > min(thresholds(flag).values()):
        return windows.model_copy(update={"combine": "max"})
    return windows


def _no_flag(model: str, prefix: str) -> str:
    return (
        f"{model} has no flag to decide by: put one into the profile, such as "
        '{"profiles": {"guard": {"flag": {"LABEL": 0.8}}}, "default": "guard"} with PUT '
        f"/v1/models/{model}/policy, or send {prefix}flag"
    )


class DetectorError(ResponseModel):
    """An error as the clients of detectors read it."""

    code: int
    message: str


def guardrail_error(error: OfframpError, message: str) -> Any:
    """Return an error as the clients of guardrails read it."""
    return {"code": error.status, "message": message}


# The way to have long texts looked at.
WINDOWS: Final = '"windows": {"stride": 64, "combine": "any"}'
