from collections.abc import Sequence

import numpy as np
import pytest

from models.certification.losses import Scale, scale_of, text_losses
from models.certification.texts import LabelledText
from models.data.examples import Target, Word
from models.evaluation.bundle_recording import BundleRecording, read_texts
from serve.bundle.loader import load_bundle
from serve.rules.traits import Task
from serve.tokenization.length_bounds import Text
from tests.models.certification.conftest import MakeBundle

NAN = float("nan")


def losses(
    make_bundle: MakeBundle,
    task: Task,
    logits: Sequence[object],
    labels: Sequence[Target | None],
    scale: Scale | None = None,
) -> dict[str, list[list[float]]]:
    """Return (exits, rows) of each loss for logits (exits, rows, ...) made by hand."""
    bundle = load_bundle(make_bundle(task))
    texts = [LabelledText(Text("w1 w2 w3"), label) for label in labels]
    tokens = read_texts(bundle, [each.text for each in texts])
    counted = np.stack([each.counted for each in tokens]) if task == "token" else None
    recording = BundleRecording(np.array(logits, np.float32), np.full(len(texts), 5), counted)
    found = text_losses(bundle, recording, tokens, texts, scale)
    return {name: each.tolist() for name, each in found.by_loss.items()}


def one_hot(*ids: int) -> list[list[float]]:
    return (9 * np.eye(5)[list(ids)]).tolist()


def test_another_label_disagrees_and_only_a_right_answer_can_be_lost(
    make_bundle: MakeBundle,
) -> None:
    a, b, nothing = [9, 0, 0], [0, 9, 0], [NAN] * 3
    early, last = [a, b, a, nothing], [a, a, b, a]
    found = losses(make_bundle, "single_label", [early, last], [0, 0, 2, 0])
    assert found == {
        "disagreement": [[0, 1, 1, 1], [0, 0, 0, 0]],
        # The third is wrong at full depth too.
        "metric": [[0, 1, 0, 1], [0, 0, 0, 0]],
    }


def test_sets_of_labels_disagree_if_any_label_does(make_bundle: MakeBundle) -> None:
    early, last = [[1, -1, -1, -1], [1, 1, -1, -1]], [[2, -2, -2, -2], [1, -1, -1, -1]]
    found = losses(make_bundle, "multi_label", [early, last], [(1, 0, 0, 0), (1, 0, 0, 0)])
    assert found == {"disagreement": [[0, 1], [0, 0]], "metric": [[0, 1], [0, 0]]}


def test_entities_disagree_by_their_ends_and_types_and_special_tokens_do_not_count(
    make_bundle: MakeBundle,
) -> None:
    # [CLS] w1 w2 w3 [SEP]; labels O B-PER I-PER B-LOC I-LOC.
    last = one_hot(0, 1, 2, 0, 0)
    other_specials, shorter = one_hot(3, 1, 2, 0, 4), one_hot(0, 1, 0, 0, 0)
    another_type, more = one_hot(0, 3, 4, 0, 0), one_hot(0, 1, 2, 3, 0)
    early = [last, other_specials, shorter, another_type, more]
    words = [Word(0, 2, 1), Word(3, 5, 2), Word(6, 8, 0)]
    found = losses(make_bundle, "token", [early, [last] * 5], [words] * 5)
    assert found["disagreement"] == [[0, 0, 1, 1, 1], [0] * 5]
    assert found["metric"] == found["disagreement"]
    wrong = [Word(0, 2, 3), Word(3, 5, 4), Word(6, 8, 0)]
    assert not any(losses(make_bundle, "token", [early, [last] * 5], [wrong] * 5)["metric"][0])


def test_values_disagree_beyond_the_tolerance_and_lose_what_error_is_added(
    make_bundle: MakeBundle,
) -> None:
    early, last = [[1.0], [1.3], [3.0], [NAN]], [[1.2], [1.0], [1.0], [1.0]]
    labels = [1.0, 1.0, 2.5, 1.0]
    found = losses(make_bundle, "regression", [early, last], labels, Scale(0.25, 4.0))
    assert found["disagreement"] == [[0, 1, 1, 1], [0] * 4]
    # The first and the third come nearer to the label by leaving early.
    assert found["metric"][0] == pytest.approx([0, 0.3 / 4, 0, 1])


def test_without_labels_only_disagreement_is_measured(make_bundle: MakeBundle) -> None:
    logits = [[[9, 0, 0]], [[0, 9, 0]]]
    assert list(losses(make_bundle, "single_label", logits, [None])) == ["disagreement"]
    values = [[[1.0]], [[2.0]]]
    assert list(losses(make_bundle, "regression", values, [None], Scale(0.1))) == ["disagreement"]


def test_the_tolerance_is_a_tenth_of_the_spread_unless_it_is_given() -> None:
    values = np.array([1.0, 3.0, 1.0, 3.0], np.float32)
    texts = [LabelledText(Text("w1"), label) for label in (0.5, 2.0, 4.5, 3.0)]
    assert scale_of(values, texts, None) == Scale(0.1, 4.0)
    assert scale_of(values, texts, 0.3) == Scale(0.3, 4.0)
    assert scale_of(values, [LabelledText(Text("w1"), None)], 0.3) == Scale(0.3, None)
