"""What one model has answered to one request."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from serve.classifier.degrading import Cause
from serve.classifier.flagger import Flagger
from serve.classifier.request import ModelRequest
from serve.classifier.request_tokenizer import Texts
from serve.classifier.windowed import WindowsReport, num_tokens
from serve.engine.row import Answer
from serve.policy.chosen_exit import ChosenExit
from serve.policy.live import Live
from serve.policy.resolution import Resolution
from serve.policy.windowing import Windows
from serve.tokenization.tokenizer import Tokens


class Classified(NamedTuple):
    """The answers to one request, in the order of its inputs.

    Attributes:
        request: what was asked.
        live: the policy that the answers were made under.
        chosen: what the request's choice of an exit had become.
        texts: the inputs as tokens, long ones cut into windows.
        windows: how long texts were cut; None where none was to be.
        flagger: tells what flags an answer; None where there is no flag.
        answers: one per input.
        tokens: what each answer is about: the input, or the window that decided.
        reports: reports on texts that had several windows, by the place of the input.
        degraded: why any of the answers is degraded.
    """

    request: ModelRequest
    live: Live
    chosen: ChosenExit
    texts: Texts
    windows: Windows | None
    flagger: Flagger | None
    answers: list[Answer]
    tokens: list[Tokens]
    reports: Mapping[int, WindowsReport]
    degraded: tuple[Cause, ...] = ()

    @property
    def policy_version(self) -> int:
        """The version of the policy that the answers were made under."""
        return self.live.entry.version

    @property
    def resolution(self) -> Resolution | None:
        """What the request's target has become; None where a rule was chosen.

        Its certificate is about single windows, so there is none if a text had several.
        """
        found = self.chosen.resolution
        return found.uncertified() if found and self.reports else found

    @property
    def lengths(self) -> Sequence[int]:
        """The tokens of each input, those that its windows share once."""
        return [num_tokens(text) for text in self.texts]

    @property
    def tokenize_s(self) -> float:
        """What tokenization took."""
        began_s, ended_s = self.request.tokenized or (0.0, 0.0)
        return ended_s - began_s

    @property
    def exit_indices(self) -> list[int]:
        """Where every row has left: each input, or each of its windows that has an answer."""
        found: list[int] = []
        for place, answer in enumerate(self.answers):
            report = self.reports.get(place)
            found += report.exit_indices if report else (answer.exit_index,)
        return found
