"""Rows of texts that were cut: which of them end early, and what they make of the texts."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.bundle.loader import Bundle
from serve.classifier.classification import Classification
from serve.classifier.classify_request import ClassifyRequest
from serve.classifier.flagger import Flagger
from serve.classifier.windowed import Windowed, num_tokens, num_windows
from serve.engine.row import Answer, Row
from serve.errors import Cancelled, ModelFailure, OfframpError
from serve.policy.profile import Windows
from serve.rules.criterion import Reason
from serve.tokenization.inputs import InputReader
from serve.tokenization.tokenizer import Text, Tokens
from serve.tokenization.windows import Cut
from tests.serve.support.fake_runner import fake_row

TOKENS = Tokens(np.zeros(3, np.int64), np.zeros(3, np.int64))
SURE = Answer(np.float32([0, 1, 2]), 3, Reason.CONFIDENT, 0.0, 0.0, 0.0, 3)


class SecondLabel:
    """Flags what is more likely of the second label."""

    def flags(self, answer: Answer, tokens: Tokens) -> list[str]:
        return ["second"] if answer.logits[1] > answer.logits[0] else []


def answer(flagged: bool) -> Answer:
    return SURE._replace(logits=np.float32([0, 1 if flagged else -1]))


def raced(sizes: Sequence[int]) -> tuple[Windowed, Classification, list[Row]]:
    """Return the rows of texts with so many windows; the first that is flagged ends its text."""
    texts = [Cut(TOKENS, [TOKENS] * n, [], [], 1) if n > 1 else TOKENS for n in sizes]
    flagger = cast("Flagger", SecondLabel())
    windowed = Windowed(texts, Windows(stride=8, combine="any"), flagger, "single_label")
    request = Classification(ClassifyRequest(inputs="w1"))
    rows = [fake_row(place + 1) for place in range(sum(sizes))]
    for place, row in enumerate(rows):
        row.waiter, row.tag = request, place
    request.expect(rows, windowed)
    return windowed, request, rows


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5), data=st.data())
def test_the_first_flagged_window_ends_the_work_on_its_text_alone(
    sizes: list[int], data: st.DataObject
) -> None:
    text_of = [text for text, size in enumerate(sizes) for _ in range(size)]
    order = data.draw(st.permutations(range(len(text_of))))
    flagged = data.draw(st.lists(st.booleans(), min_size=len(text_of), max_size=len(text_of)))

    async def run() -> tuple[list[Answer | None], dict[int, int], list[bool]]:
        windowed, request, rows = raced(sizes)
        for place in order:
            gone = Cancelled("another row has answered") if rows[place].cancelled else None
            request.settle(place, gone or answer(flagged[place]))
        return await request.outcomes(), windowed.winners, [row.cancelled for row in rows]

    answers, winners, cancelled = asyncio.run(run())
    for text, size in enumerate(sizes):
        mine = [place for place in order if text_of[place] == text]
        first = next((place for place in mine if flagged[place]), None) if size > 1 else None
        assert winners.get(text) == first
        done = mine if first is None else mine[: mine.index(first) + 1]
        assert {place for place in mine if answers[place]} == set(done)
        assert {place for place in mine if cancelled[place]} == set(mine) - set(done)


def test_an_error_before_any_flag_ends_the_request_and_one_after_it_is_of_no_account() -> None:
    async def run(*results: Answer | OfframpError) -> list[Any]:
        _, request, _ = raced([len(results)])
        for place, result in enumerate(results):
            request.settle(place, result)
        return await request.outcomes()

    broken = ModelFailure("broken")
    with pytest.raises(ModelFailure):
        asyncio.run(run(answer(False), broken, answer(True)))
    found = asyncio.run(run(answer(False), answer(True), broken))
    assert [each is not None for each in found] == [True, True, False]


def test_texts_that_were_cut_are_reported_and_tell_of_a_deadline_that_cut_a_window_short(
    bundle: Bundle,
) -> None:
    reader = InputReader(bundle.tokenizer_path, bundle.manifest)
    texts = reader.read_windows([Text("w1"), Text("w1 " * 100)], 8)
    assert [num_tokens(text) for text in texts] == [3, 102]
    windowed = Windowed(texts, Windows(stride=8), None, "single_label")
    cut = SURE._replace(logits=np.float32([0, 0, 0]), exit_index=1, reason=Reason.DEADLINE)
    all_sure = [SURE] * len(windowed.tokens)
    for last, reason in ((SURE, Reason.CONFIDENT), (cut, Reason.DEADLINE)):
        answers, tokens, reports = windowed.combined([*all_sure[:-1], last])
        assert (answers[0], tokens[0]) == (SURE, texts[0])
        assert answers[1].reason is reason
        assert list(reports) == [1]
        assert reports[1].exit_indices == (3,) * (num_windows(texts[1]) - 1) + (last.exit_index,)
