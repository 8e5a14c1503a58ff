"""What one model has answered to one request."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from serve.classifier.combined import WindowsReport
from serve.classifier.degrading import Cause
from serve.classifier.flagger import Flagger
from serve.engine.row import Answer
from serve.policy.resolution import Resolution
from serve.tokenization.tokenizer import Tokens

_NONE: Mapping[int, WindowsReport] = MappingProxyType({})


class Classified(NamedTuple):
    """The answers to one request, in the order of its inputs.

    Attributes:
        answers: one per input.
        tokens: what each input was tokenized to.
        lengths: tokens of each input, those of all its windows once.
        policy_version: version of the policy that the answers were made under.
        resolution: of the target that the exit rule came from; None where a rule was chosen. Its
            certificate is about single windows, so there is none if a text had several.
        reports: of texts that had several windows, by the place of the input.
        flagger: tells what flags an answer; None where there is no flag.
        tokenize_s: what tokenization took.
        degraded: why answers are less than what was asked for; empty if none is.
    """

    answers: list[Answer]
    tokens: list[Tokens]
    lengths: Sequence[int]
    policy_version: int
    resolution: Resolution | None = None
    reports: Mapping[int, WindowsReport] = _NONE
    flagger: Flagger | None = None
    tokenize_s: float = 0.0
    degraded: tuple[Cause, ...] = ()

    @property
    def exit_indices(self) -> list[int]:
        """Where every row has left: each input, or each of its windows that has an answer."""
        found: list[int] = []
        for place, answer in enumerate(self.answers):
            report = self.reports.get(place)
            found += report.exit_indices if report else (answer.exit_index,)
        return found
