"""How one request is carried out: its rule, its flag, its windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from serve.classifier.classified import Classified
from serve.classifier.combined import WindowsReport, combine
from serve.classifier.flagger import Flagger
from serve.classifier.race import Race
from serve.classifier.request import ModelRequest
from serve.engine.row import Answer
from serve.errors import InvalidRequest
from serve.policy.applied import ChosenExit
from serve.policy.flag import check_flag
from serve.policy.windows import Windows, check_windows
from serve.rules import CompiledRule
from serve.rules.traits import Traits
from serve.tokenization.entities import EntityReader
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut


class Rows(NamedTuple):
    """The rows of a request: each input, or each window of it.

    Attributes:
        tokens: of each row.
        text_of: the place of the input that each row belongs to.
    """

    tokens: list[Tokens]
    text_of: Sequence[int]

    @classmethod
    def of(cls, texts: Sequence[Tokens | Cut]) -> "Rows":
        """Return the rows of inputs, in order."""
        tokens, text_of = list[Tokens](), list[int]()
        for place, text in enumerate(texts):
            tokens += text.windows if isinstance(text, Cut) else [text]
            text_of += [place] * num_windows(text)
        return cls(tokens, text_of)


def num_windows(text: Tokens | Cut) -> int:
    """Return how many rows an input has."""
    return len(text.windows) if isinstance(text, Cut) else 1


def _whole(text: Tokens | Cut) -> Tokens:
    return text.whole if isinstance(text, Cut) else text


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request and the policy together have become.

    Attributes:
        chosen: the rule and where it comes from.
        flagger: of the request's flag, or else of the profile's.
        windows: of the request, or else of the profile; None where long texts are not cut.
        traits: of the model.
    """

    chosen: ChosenExit
    flagger: Flagger | None
    windows: Windows | None
    traits: Traits

    @property
    def rule(self) -> CompiledRule:
        """When rows may leave."""
        return self.chosen.rule

    def race(self, rows: Rows, num_inputs: int) -> Race | None:
        """Return what ends the work on a text at its first flagged window, if that is wanted."""
        flagger = self.flagger
        several = len(rows.tokens) > num_inputs
        if flagger is None or self.windows is None or not several or self.windows.combine != "any":
            return None

        def flagged(place: int, answer: Answer) -> bool:
            return bool(flagger.flags(answer, rows.tokens[place]))

        return Race(rows.text_of, flagged)

    def classified(
        self,
        texts: Sequence[Tokens | Cut],
        answers: Sequence[Answer | None],
        winners: Mapping[int, int],
        policy_version: int,
    ) -> Classified:
        """Return the answers of the inputs from those of their rows.

        Args:
            texts: the inputs.
            answers: of the rows, in order; None for those that were cancelled.
            winners: by place of the input, the row that has answered for it.
            policy_version: version of the policy that they were made under.
        """
        found, tokens, reports = list[Answer](), list[Tokens](), dict[int, WindowsReport]()
        first = 0
        for place, text in enumerate(texts):
            end = first + num_windows(text)
            winner = winners[place] - first if place in winners else None
            answer, of_answer, report = self._of_text(text, answers[first:end], winner)
            found.append(answer)
            tokens.append(of_answer)
            if report:
                reports[place] = report
            first = end
        resolution = self.chosen.resolution
        if resolution and reports:
            resolution = replace(resolution, certificate=None)
        lengths = [len(_whole(text).input_ids) for text in texts]
        return Classified(found, tokens, lengths, policy_version, resolution, reports, self.flagger)

    def _of_text(
        self, text: Tokens | Cut, answers: Sequence[Answer | None], winner: int | None
    ) -> tuple[Answer, Tokens, WindowsReport | None]:
        if isinstance(text, Cut) and self.windows:
            return combine(text, answers, winner, self.windows, self.traits.task)
        (answer,) = answers
        assert answer is not None
        assert isinstance(text, Tokens)
        return answer, text, None


def plan_for(
    request: ModelRequest, chosen: ChosenExit, traits: Traits, entities: EntityReader | None
) -> Plan:
    """Return how a request is carried out.

    Args:
        request: what is asked.
        chosen: the exit and the settings of its profile.
        traits: of the model.
        entities: of a token classifier.

    Raises:
        InvalidRequest: the model cannot flag or be windowed like this.
    """
    flag = request.flag or chosen.settings.flag
    # A text that its request wants cut short needs no windows of the profile.
    windows = request.windows or (None if request.truncate else chosen.settings.windows)
    if request.flag is not None:
        check_flag(dict(request.flag), traits)
    if windows is not None:
        check_windows(windows, flag is not None, traits)
        if request.truncate:
            raise InvalidRequest("truncate: the texts are cut into windows; send one of the two")
        if request.exit_trace and traits.task == "token":
            raise InvalidRequest(
                "return: exits of tokens are not shown with windows; leave exits or windows out"
            )
    flagger = Flagger(flag, traits, entities, request.aggregation) if flag else None
    return Plan(chosen, flagger, windows, traits)
