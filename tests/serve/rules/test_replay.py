"""What rules make of recorded logits: where rows leave, and with what."""

import numpy as np
import pytest

from serve.errors import InvalidRule
from serve.rules.replay import Recording
from serve.rules.signals import confidence, softmax
from serve.rules.traits import Traits
from tests.serve.support.judging import NUM_EXITS, THREE, rule, saying

NEUTRAL = (1.0,) * NUM_EXITS
ROWS = ("aaaaaa", "abbbab", "abcabc", "aabbcc", "cba?cb")
LOGITS = np.concatenate([saying(said, sureness=2) for said in ROWS], axis=1)
RECORDING = Recording(THREE, NEUTRAL, LOGITS)
VOTES = rule("voting", votes=3)


def test_rows_leave_where_they_would_and_answer_with_that_exits_logits() -> None:
    patient = rule("patience", patience=2)
    taken = RECORDING.taken(patient)
    assert taken.exits.tolist() == [2, 3, 5, 5, 5]
    assert taken.heads.tolist() == taken.exits.tolist()
    assert taken.labels.tolist() == [-1] * 5
    assert taken.logits.tolist() == LOGITS[taken.exits, range(5)].tolist()
    assert taken.deciding.argmax(axis=1).tolist() == [0, 1, 2, 2, 1]


def test_the_label_is_what_was_voted_for() -> None:
    taken = RECORDING.taken(VOTES)
    assert taken.exits.tolist() == [2, 3, 5, 5, 5]
    # Ties take the last head's; the fifth row has two votes for c and b each, one for a.
    assert taken.labels.tolist() == [0, 1, -1, -1, -1]
    late = RECORDING.taken(rule("voting", votes=3, min_layer=5))
    assert late.exits.tolist()[:2] == [4, 4]
    assert late.logits[1].argmax() == 0
    assert late.deciding[1].argmax() == 1
    # The recording must not be written to.
    assert LOGITS[4, 1].argmax() == 0


def test_the_most_confident_head_answers_from_the_exit_where_the_row_left() -> None:
    recording = np.array([saying("abc"[i % 3], s)[0] for i, s in enumerate((1, 4, 2, 3, 1, 2))])
    sure = rule("confidence", threshold=1, fallback="most_confident")
    taken = Recording(THREE, NEUTRAL, recording).taken(sure)
    assert (taken.exits.tolist(), taken.heads.tolist()) == ([5], [1])
    assert taken.deciding.argmax(axis=1).tolist() == [1]


def test_an_ensemble_answers_with_its_mean() -> None:
    each = rule("confident_patience", threshold=0.9, patience=2, ensemble="all")
    taken = RECORDING.taken(each)
    assert taken.exits.tolist()[:2] == [1, 1]
    assert softmax(taken.logits[1]) == pytest.approx(softmax(LOGITS[:2, 1]).mean(axis=0))


def test_tokens_that_do_not_count_decide_nothing_in_a_recording_either() -> None:
    tags = Traits((1, 2), ("O", "B"), "token")
    recording = np.zeros((2, 1, 3, 2), np.float32)
    recording[:, 0, 0] = [9, 0]
    sure = rule("entropy", threshold=0.1)
    counted = np.array([[True, False, False]])
    assert Recording(tags, (1.0, 1.0), recording).taken(sure).exits.tolist() == [1]
    taken = Recording(tags, (1.0, 1.0), recording, counted).taken(sure)
    assert taken.exits.tolist() == [0]
    assert taken.deciding.tolist() == recording[0].tolist()


LEARNED = Traits(THREE.exits, THREE.labels, learned=True)


def test_predicted_errors_that_were_recorded_decide_where_rows_leave() -> None:
    errors = np.full((NUM_EXITS, len(ROWS)), 0.9, np.float32)
    errors[1, 0] = errors[3, 1] = errors[2, 1] = 0.2
    half = rule("learned", threshold=0.5)
    said = Recording(LEARNED, NEUTRAL, LOGITS, uncertainty=errors)
    assert said.taken(half).exits.tolist() == [1, 2, 5, 5, 5]
    assert said.signals(half).tolist() == errors.tolist()


def test_signals_are_those_of_every_exit_whether_or_not_rows_would_have_left() -> None:
    sure = rule("confidence", threshold=0.0)
    expected = confidence(LOGITS)
    assert RECORDING.signals(sure) == pytest.approx(expected, nan_ok=True)


def test_without_predicted_errors_the_learned_rule_cannot_be_tried() -> None:
    said = Recording(LEARNED, NEUTRAL, LOGITS)
    for tried in (said.taken, said.signals):
        with pytest.raises(InvalidRule):
            tried(rule("learned", threshold=0.5))


def test_some_exits_decide_as_if_there_were_no_others() -> None:
    taken = RECORDING.at([1, 3, 5]).taken(rule("patience", patience=1))
    assert taken.exits.tolist() == [1, 1, 2, 2, 2]
