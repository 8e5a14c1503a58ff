import numpy as np
import pytest

from models.quality.losses import Scale, losses_of, scale_of
from serve.rules.traits import Task, Traits
from tests.serve.support.task_bundles import LABELS
from tests.support.recordings import said

NAN = float("nan")


def losses(
    task: Task, logits: object, gold: object, scale: Scale | None = None, **more: object
) -> dict[str, list[list[float]]]:
    """Return (exits, rows) of each loss for logits (exits, rows, ...) made by hand."""
    found = losses_of(said(logits, Traits((1, 2), LABELS[task], task), gold, **more), scale)
    return {name: each.tolist() for name, each in found.by_loss.items()}


def one_hot(*ids: int) -> list[list[float]]:
    return (9 * np.eye(5)[list(ids)]).tolist()


def test_another_label_disagrees_and_only_a_right_answer_can_be_lost() -> None:
    a, b, nothing = [9, 0, 0], [0, 9, 0], [NAN] * 3
    early, last = [a, b, a, nothing], [a, a, b, a]
    found = losses("single_label", [early, last], [0, 0, 2, 0])
    assert found == {
        "disagreement": [[0, 1, 1, 1], [0, 0, 0, 0]],
        # The third is wrong at full depth too.
        "metric": [[0, 1, 0, 1], [0, 0, 0, 0]],
    }


def test_sets_of_labels_disagree_if_any_label_does() -> None:
    early, last = [[1, -1, -1, -1], [1, 1, -1, -1]], [[2, -2, -2, -2], [1, -1, -1, -1]]
    found = losses("multi_label", [early, last], [(1, 0, 0, 0), (1, 0, 0, 0)])
    assert found == {"disagreement": [[0, 1], [0, 0]], "metric": [[0, 1], [0, 0]]}


def test_entities_disagree_by_their_ends_and_types_and_special_tokens_do_not_count() -> None:
    # [CLS] w1 w2 w3 [SEP]; labels O B-PER I-PER B-LOC I-LOC.
    last = one_hot(0, 1, 2, 0, 0)
    other_specials, shorter = one_hot(3, 1, 2, 0, 4), one_hot(0, 1, 0, 0, 0)
    another_type, more = one_hot(0, 3, 4, 0, 0), one_hot(0, 1, 2, 3, 0)
    early = [last, other_specials, shorter, another_type, more]
    words, counted = [-100, 1, 2, 0, -100], [[False, True, True, True, False]] * 5
    found = losses("token", [early, [last] * 5], [words] * 5, counted=np.array(counted))
    assert found["disagreement"] == [[0, 0, 1, 1, 1], [0] * 5]
    assert found["metric"] == found["disagreement"]
    wrong = [[-100, 3, 4, 0, -100]] * 5
    found = losses("token", [early, [last] * 5], wrong, counted=np.array(counted))
    assert not any(found["metric"][0])


def test_values_disagree_beyond_the_tolerance_and_lose_what_error_is_added() -> None:
    early, last = [[1.0], [1.3], [3.0], [NAN]], [[1.2], [1.0], [1.0], [1.0]]
    labels = [1.0, 1.0, 2.5, 1.0]
    found = losses("regression", [early, last], labels, Scale(0.25, 4.0))
    assert found["disagreement"] == [[0, 1, 1, 1], [0] * 4]
    # The first and the third come nearer to the label by leaving early.
    assert found["metric"][0] == pytest.approx([0, 0.3 / 4, 0, 1])


def test_without_labels_only_disagreement_is_measured() -> None:
    logits = [[[9, 0, 0]], [[0, 9, 0]]]
    assert list(losses("single_label", logits, None)) == ["disagreement"]
    values = [[[1.0]], [[2.0]]]
    assert list(losses("regression", values, None, Scale(0.1))) == ["disagreement"]


def test_the_tolerance_is_a_tenth_of_the_spread_unless_it_is_given() -> None:
    values = [[[0.0]] * 4, [[1.0], [3.0], [1.0], [3.0]]]
    traits = Traits((1, 2), ("v",), "regression")
    labelled = said(values, traits, [0.5, 2.0, 4.5, 3.0])
    assert scale_of(labelled, None) == Scale(0.1, 4.0, 1.0)
    assert scale_of(labelled, 0.3) == Scale(0.3, 4.0, 1.0)
    assert scale_of(said(values, traits), 0.3) == Scale(0.3, None, 1.0)
