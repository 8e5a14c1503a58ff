"""What a request's answers become where texts were cut."""

import numpy as np

from serve.bundle.loader import Bundle
from serve.classifier.plan import Plan, num_windows
from serve.engine.row import Answer
from serve.policy.applied import ChosenExit
from serve.policy.ladder import Certificate
from serve.policy.resolution import Resolution, ServedRung
from serve.policy.windows import Windows
from serve.rules import NeverRule, compile_rule
from serve.rules.reason import Reason
from serve.tokenization.inputs import InputReader
from serve.tokenization.length_bounds import Text


def test_a_certificate_is_named_only_where_no_text_was_cut(bundle: Bundle) -> None:
    traits = bundle.manifest.traits
    rule, windows = NeverRule(), Windows(stride=8)
    certificate = Certificate(loss="disagreement", epsilon=0.1, delta=0.1, n=10, observed=0.0)
    rung = ServedRung(rule, True, 4, 1, 1, certificates=(certificate,))
    compiled = compile_rule(rule, traits, (1.0,) * len(traits.exits))
    plan = Plan(ChosenExit(compiled, Resolution(rung, certificate)), None, windows, traits)
    reader = InputReader(bundle.tokenizer_path, bundle.manifest)
    short, long = reader.read_windows([Text("w1"), Text("w1 " * 100)], windows.stride)
    answer = Answer(np.float32([0, 1, 2]), 3, Reason.FINAL, 0.0, 0.0, 0.0, 3)

    def named(*texts: object) -> Certificate | None:
        answers = [answer] * sum(map(num_windows, texts))  # type: ignore[arg-type]
        classified = plan.classified(texts, answers, {}, 1)  # type: ignore[arg-type]
        assert classified.resolution is not None
        assert classified.exit_indices == [3] * len(answers)
        return classified.resolution.certificate

    assert named(short) == certificate
    assert named(short, long) is None


def test_a_window_that_the_deadline_has_cut_short_tells_so_of_its_text(bundle: Bundle) -> None:
    traits, windows = bundle.manifest.traits, Windows(stride=8)
    compiled = compile_rule(NeverRule(), traits, (1.0,) * len(traits.exits))
    plan = Plan(ChosenExit(compiled, None), None, windows, traits)
    reader = InputReader(bundle.tokenizer_path, bundle.manifest)
    texts = reader.read_windows([Text("w1 " * 100)], windows.stride)
    sure = Answer(np.float32([0, 1, 2]), 3, Reason.CONFIDENT, 0.0, 0.0, 0.0, 3)
    cut = sure._replace(logits=np.float32([0, 0, 0]), exit_index=1, reason=Reason.DEADLINE)
    answers = [sure] * num_windows(texts[0])
    whole = plan.classified(texts, answers, {}, 1)
    short = plan.classified(texts, [*answers[:-1], cut], {}, 1)
    assert [whole.answers[0].reason, short.answers[0].reason] == [Reason.CONFIDENT, Reason.DEADLINE]
    assert whole.lengths == short.lengths == [102]
    won = plan.classified(texts, [sure, *[None] * (len(answers) - 1)], {0: 0}, 1)
    assert won.answers[0].reason is Reason.CONFIDENT
    assert won.lengths == [102]
