"""Texts on which a policy is tried are answered, flagged and compared as the server does it."""

import math
from types import SimpleNamespace
from typing import Any, Literal, cast

import numpy as np
import pytest

from serve.classifier.flagger import Flagger
from serve.classifier.score_map import ScoreMap
from serve.classifier.windowed import combine
from serve.dry_run.answers import AnswerReader, full_depth
from serve.dry_run.exit_trial import interval
from serve.dry_run.texts import Part
from serve.engine.row import Answer
from serve.policy.flag import AnyFlag, Bands
from serve.policy.profile import Windows
from serve.rules import LayerRule
from serve.rules.criterion import Reason
from serve.rules.replay import Recording, Taken
from serve.rules.signals import decisions
from serve.rules.traits import Task, Traits
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.windows import Cut

EXITS, NUM_WINDOWS, TOLERANCE = (1, 2, 4), (1, 3, 2, 1) * 50, 0.3
LABELS: dict[Task, tuple[str, ...]] = {
    "single_label": ("a", "b", "c"),
    "multi_label": ("a", "b", "c"),
    "regression": ("stars",),
}
SCORES = {
    "single_label": ((0.5,), (0.8,), (1.0,)),
    "multi_label": ((0.5,) * 3, (2.0,) * 3, (1,) * 3),
}
FLAG: AnyFlag = {"a": 0.7, "b": Bands(flag=0.9, defer=0.4)}
TOKENS = Tokens(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Stream:
    """Texts of one window and of several, with random logits."""

    def __init__(self, task: Task) -> None:
        self.traits = Traits(EXITS, LABELS[task], task, score_temperatures=SCORES.get(task))
        self.scores = ScoreMap(SCORES.get(task))
        shape = len(EXITS), sum(NUM_WINDOWS), len(LABELS[task])
        logits = np.random.default_rng(0).normal(scale=2, size=shape).astype(np.float32)
        logits[:2] = logits[2] + 0.5 * logits[:2]
        self.part = Part(
            Recording(self.traits, (1.0,) * len(EXITS), logits),
            np.cumsum([0, *NUM_WINDOWS[:-1]]),
        )

    def answers(self, taken: Taken, how: Literal["max", "mean"]) -> list[Answer]:
        """Return the answers that the server would give."""
        rows = [
            self.scores.answer(Answer(logits, head, Reason.CONFIDENT, math.nan, 0.0, 0.0, head))
            for logits, head in zip(taken.logits, taken.heads.tolist(), strict=True)
        ]
        found = []
        for first, number in zip(self.part.first, NUM_WINDOWS, strict=True):
            own = rows[first : first + number]
            if number > 1:
                cut = SimpleNamespace(whole=TOKENS, windows=own, spans=[(0, 1)] * number)
                windows = Windows(combine=how)
                own = [combine(cast(Cut, cut), own, None, windows, self.traits.task).answer]
            found += own
        return found


def differs(task: Task, one: Answer, other: Answer) -> bool:
    if task == "regression":
        return bool(abs(one.logits[0] - other.logits[0]) > TOLERANCE)
    pair = [decisions(task, each.logits[None]).tolist() for each in (one, other)]
    return bool(pair[0] != pair[1])


@pytest.mark.parametrize("how", ["max", "mean"])
@pytest.mark.parametrize("task", LABELS)
def test_texts_of_any_number_of_windows_differ_where_the_servers_answers_do(
    task: Task, how: Literal["max", "mean"]
) -> None:
    stream = Stream(task)
    reader = AnswerReader(stream.traits, stream.scores, TOLERANCE)
    taken = stream.part.recording.taken(LayerRule(layer=2))
    early, full = stream.answers(taken, how), stream.answers(full_depth(stream.part), how)
    expected = [differs(task, *pair) for pair in zip(early, full, strict=True)]
    found = reader.differs(stream.part, taken, how == "mean")
    assert found is not None
    assert found.tolist() == expected
    assert 0 < sum(expected) < len(expected)


@pytest.mark.parametrize("how", ["max", "mean"])
@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_they_are_flagged_and_deferred_as_the_server_says(
    task: Task, how: Literal["max", "mean"]
) -> None:
    stream = Stream(task)
    taken = stream.part.recording.taken(LayerRule(layer=1))
    flagger, answers = Flagger(FLAG, stream.traits, None), stream.answers(taken, how)
    reader = AnswerReader(stream.traits, stream.scores, None)
    flagged, deferred = reader.flagged(stream.part, taken, FLAG, how == "mean")
    assert flagged.tolist() == [bool(flagger.flags(each, TOKENS)) for each in answers]
    assert deferred.tolist() == [bool(flagger.defers(each, TOKENS)) for each in answers]
    assert flagged.any()
    assert deferred.any()


def test_a_score_flags_at_the_threshold_that_it_reads() -> None:
    stream = Stream("single_label")
    taken = full_depth(stream.part)
    answer = stream.answers(taken, "max")[0]
    reader = AnswerReader(stream.traits, stream.scores, None)
    p = Flagger({"a": 0.0}, stream.traits, None).found(answer, TOKENS)[0].score
    read = float(f"{p:.7g}")
    for least, flags in ((read, True), (read + 1e-6, False)):
        own: Any = {"a": least}
        assert bool(Flagger(own, stream.traits, None).flags(answer, TOKENS)) == flags
        assert bool(reader.flagged(stream.part, taken, own, False)[0][0]) == flags


def test_without_a_tolerance_it_is_not_known_which_values_differ() -> None:
    stream = Stream("regression")
    reader = AnswerReader(stream.traits, stream.scores, None)
    assert reader.differs(stream.part, full_depth(stream.part), False) is None


@pytest.mark.parametrize("n", [1, 7, 100, 1500, 5000])
def test_intervals_are_those_of_clopper_and_pearson(n: int) -> None:
    from scipy.stats import beta

    for k in {0, 1, n // 3, n // 2, n - 1, n}:
        low = beta.ppf(0.025, k, n - k + 1) if k else 0.0
        high = beta.ppf(0.975, k + 1, n - k) if k < n else 1.0
        assert interval(k, n) == pytest.approx((low, high), abs=1e-9)
    assert interval(0, 0) == (0.0, 1.0)
