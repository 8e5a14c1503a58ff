"""What a request's answers become where texts were cut."""

import numpy as np

from serve.bundle.loader import Bundle
from serve.classifier.windowed import Windowed, num_tokens, num_windows
from serve.engine.row import Answer
from serve.policy.windows import Windows
from serve.rules.reason import Reason
from serve.tokenization.inputs import InputReader
from serve.tokenization.tokenizer import Text

WINDOWS = Windows(stride=8)
SURE = Answer(np.float32([0, 1, 2]), 3, Reason.CONFIDENT, 0.0, 0.0, 0.0, 3)


def test_texts_that_were_cut_are_reported_and_the_others_are_answered_as_they_are(
    bundle: Bundle,
) -> None:
    reader = InputReader(bundle.tokenizer_path, bundle.manifest)
    texts = reader.read_windows([Text("w1"), Text("w1 " * 100)], WINDOWS.stride)
    windowed = Windowed(texts, WINDOWS, None, "single_label")
    answers = [SURE] * len(windowed.tokens)
    assert len(answers) == 1 + num_windows(texts[1])
    answered = windowed.answered(answers)
    assert answered.answers[0] is SURE
    assert answered.tokens[0] is texts[0]
    assert list(answered.reports) == [1]
    assert answered.reports[1].exit_indices == (3,) * num_windows(texts[1])


def test_a_window_that_the_deadline_has_cut_short_tells_so_of_its_text(bundle: Bundle) -> None:
    reader = InputReader(bundle.tokenizer_path, bundle.manifest)
    texts = reader.read_windows([Text("w1 " * 100)], WINDOWS.stride)
    cut = SURE._replace(logits=np.float32([0, 0, 0]), exit_index=1, reason=Reason.DEADLINE)
    windowed = Windowed(texts, WINDOWS, None, "single_label")
    answers = [SURE] * num_windows(texts[0])
    whole = windowed.answered(answers)
    short = windowed.answered([*answers[:-1], cut])
    assert [whole.answers[0].reason, short.answers[0].reason] == [Reason.CONFIDENT, Reason.DEADLINE]
    assert num_tokens(texts[0]) == 102
