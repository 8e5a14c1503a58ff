"""Recording bundles and models in PyTorch, and what recordings say: answers, and what is right."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from models.data.alignment import IGNORED
from models.data.examples import Target, Word
from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel
from models.quality.answers import Entity, are_entity_tags, entities_of
from models.quality.recorded import Recorded, recorded
from models.quality.source import BundleSource, TorchSource
from serve.bundle.loader import Bundle, load_bundle
from serve.engine.warm_up import steps
from serve.errors import InvalidRequest
from serve.rules import EntropyRule, LayerRule, NeverRule, PatienceRule, Rule, VotingRule
from serve.rules.traits import Task, Traits
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.tokenizer import Text
from tests.models.conftest import WORDS, tiny_tokenizer
from tests.serve.support.task_bundles import EXITS, LABELS, Kind, write_task_bundle
from tests.support.recordings import margins, noisy, said

CPU = Placement("cpu", "fp32")
# Of many lengths, and out of order.
TEXTS = [Text(" ".join(f"w{(7 * i + k) % 196}" for k in range(1 + 11 * i % 40))) for i in range(70)]
FILMS = [Text(" ".join(WORDS[(3 * i + k) % 10] for k in range(1 + 7 * i % 20))) for i in range(70)]


def test_each_row_of_a_bundle_is_recorded_as_if_it_ran_alone(bundle: Bundle) -> None:
    done: list[int] = []
    source = BundleSource(bundle, CPU)
    found = recorded(source, TEXTS, advance=done.append)
    assert (found.logits.shape, sum(done)) == ((4, len(TEXTS), 3), len(TEXTS))
    assert found.gold is None
    runner = build_runner(bundle, CPU, 1)
    for row in (0, 33, 69):
        ids = source.read(TEXTS)[row].input_ids[None]
        alone = [output.logits[0] for output in steps(runner, ids, np.ones_like(ids), 0 * ids)]
        assert found.num_tokens[row] == ids.shape[1]
        assert np.allclose(found.logits[:, row], alone, atol=1e-4)


def test_a_tagger_is_recorded_per_token_and_special_tokens_do_not_count(tmp_path: Path) -> None:
    bundle = load_bundle(write_task_bundle(tmp_path, Kind("token")))
    words: list[Target] = [[Word(0, len(text.text.split()[0]), 3)] for text in TEXTS]
    found = recorded(BundleSource(bundle, CPU), TEXTS, words)
    assert found.logits.shape == (3, 70, found.num_tokens.max(), 5)
    assert found.counted is not None
    assert (found.counted.sum(axis=1) == found.num_tokens - 2).all()
    assert found.gold is not None
    assert (found.gold[:, 1] == 3).all()
    assert (np.delete(found.gold, 1, axis=1) == IGNORED).all()
    with pytest.raises(InvalidRequest, match="text_pair"):
        recorded(BundleSource(bundle, CPU), [Text("w1", "w2")])


@pytest.mark.parametrize("task", LABELS)
def test_only_active_exits_are_recorded(task: Task, tmp_path: Path) -> None:
    bundle = load_bundle(write_task_bundle(tmp_path, Kind(task)))
    every = recorded(BundleSource(bundle, CPU), TEXTS)
    fewer = recorded(BundleSource(bundle.presenting((1, 4)), CPU), TEXTS)
    assert np.array_equal(fewer.logits, every.logits[[EXITS.index(1), EXITS.index(4)]])


@pytest.mark.parametrize(
    ("task", "labels", "label"),
    [
        ("single_label", "ab", 1),
        ("multi_label", "ab", (1.0, 0.0)),
        ("regression", "a", 0.5),
        ("token", "abc", [Word(0, 3, 2)]),
    ],
)
def test_each_row_of_a_model_is_recorded_as_if_it_ran_alone_and_its_training_goes_on(
    make_model: Callable[..., MultiExitModel],
    task: Task,
    labels: str,
    label: Target,
) -> None:
    model = make_model(task=task, labels=tuple(labels)).train()
    source = TorchSource(model, tiny_tokenizer().to_str(), 32)
    found = recorded(source, FILMS, [label] * 70)
    assert found.traits == model.traits
    assert model.training
    model.eval()
    for row in (0, 31, 69):
        ids = torch.from_numpy(source.read(FILMS)[row].input_ids)[None]
        alone = torch.stack(model(ids, torch.ones_like(ids)))[:, 0].detach().numpy()
        inner = (slice(ids.shape[1]),) if task == "token" else ()
        assert found.logits[:, row][:, *inner] == pytest.approx(alone, abs=1e-5)
        assert found.gold is not None
        if task == "token":
            assert found.counted is not None
            assert found.counted[row].sum() == ids.shape[1] - 2
            assert found.gold[row, 1] == 2
        else:
            assert np.array_equal(found.gold[row], label)


def test_the_errors_that_a_models_heads_predict_are_kept(
    make_model: Callable[..., MultiExitModel],
) -> None:
    head = HeadConfig(uncertainty="pooler")
    model = MultiExitModel(make_model().encoder, ExitConfig(exits=(1, 3), head=head)).eval()
    source = TorchSource(model, tiny_tokenizer().to_str(), 32)
    found = recorded(source, FILMS)
    assert found.uncertainty is not None
    ids = torch.from_numpy(source.read(FILMS)[5].input_ids)[None]
    with torch.inference_mode():
        alone = [out.uncertainty.item() for out in model.exit_outputs(ids, torch.ones_like(ids))]
    assert found.uncertainty[:, 5] == pytest.approx(alone, abs=1e-6)


# Rows: sure and right at once; sure at layer 4; wrongly sure at once; never sure.
BY_HAND = margins([[9, 9, 9], [-0.1, -9, -9], [9, -1, -9], [0.1, -0.1, 0.2]], [1, 0, 0, 1])


@pytest.mark.parametrize(
    ("rule", "exits", "agrees"),
    [
        (EntropyRule(threshold=0.1), [0, 1, 0, 2], [True, True, False, True]),
        (PatienceRule(patience=1), [1, 1, 2, 2], [True] * 4),
        (NeverRule(), [2, 2, 2, 2], [True] * 4),
        # Voters outvote the last exit on the fourth row: its answer is not the exit's own.
        (VotingRule(votes=1.0), [0, 0, 0, 0], [True, True, False, True]),
    ],
)
def test_a_rule_is_judged_by_the_answers_that_rows_leave_with(
    rule: Rule, exits: list[int], agrees: list[bool]
) -> None:
    taken = BY_HAND.taken(rule)
    assert taken.exits.tolist() == exits
    found = BY_HAND.agrees(taken)
    assert found is not None
    assert found.tolist() == agrees


TAGS = ("O", "B-PER", "I-PER")


def tagged(*exits: Sequence[int], gold: Sequence[int]) -> Recorded:
    """One text: [CLS], tokens, [SEP]; the tags of the tokens at every exit, and of the words."""
    tags = np.array([[[0, *ids, 0]] for ids in exits])
    counted = np.array([[False, *[True] * len(gold), False]])
    traits = Traits(tuple(range(1, len(exits) + 1)), TAGS, "token")
    return said(9 * np.eye(3)[tags], traits, [[-100, *gold, -100]], counted=counted)


def test_a_taggers_answer_is_the_entities_that_are_served() -> None:
    # The second token continues a word. Its tag does not count as a word's tag, and yet the
    # server's entity ends there: the answer differs, though all words have the same tags.
    pieces = tagged([1, 0, 0], [1, 2, 0], gold=[1, -100, 0])
    assert pieces.same().tolist() == [[False], [True]]
    assert pieces.right is not None
    assert pieces.right.tolist() == [[True], [True]]
    leaves = pieces.agrees(pieces.taken(LayerRule(layer=1)))
    assert leaves is not None
    assert leaves.tolist() == [False]


def test_other_tags_of_the_same_entities_are_the_same_answer() -> None:
    # I-PER after O begins an entity, as B-PER does.
    begun = tagged([0, 2, 2], [0, 1, 2], gold=[0, 1, 2])
    assert begun.same().all()
    assert begun.right is not None
    assert begun.right.all()
    assert not tagged([0, 1, 1], [0, 1, 2], gold=[0, 1, 2]).same()[0].any()


def test_tags_that_name_no_entities_are_compared_word_by_word() -> None:
    logits = np.eye(2)[[[[0, 1, 1]], [[0, 1, 0]]]]
    traits = Traits((1, 2), ("NOUN", "VERB"), "token")
    words = said(logits, traits, [[0, 1, 0]], counted=np.ones((1, 3), bool))
    assert words.right is not None
    assert words.right.tolist() == [[False], [True]]
    assert words.same().tolist() == [[False], [True]]


@pytest.mark.parametrize("task", ["single_label", "multi_label", "token", "regression"])
def test_every_task_but_a_regression_has_answers(task: Task) -> None:
    recorded = noisy(task)
    missing = task == "regression"
    assert (recorded.answers is None, recorded.right is None) == (missing, missing)
    assert (recorded.agrees(recorded.taken(NeverRule())) is None) == missing
    if not missing:
        assert recorded.same()[-1].all()
        assert not recorded.same().all()


@pytest.mark.parametrize("task", ["single_label", "token"])
def test_some_of_the_rows_say_what_they_say_among_all(task: Task) -> None:
    rows, whole = np.array([7, 3, 3]), noisy(task)
    part = whole.of(rows)
    assert part.num_rows == 3
    assert np.array_equal(part.same(), whole.same()[:, rows])
    assert part.right is not None
    assert whole.right is not None
    assert np.array_equal(part.right, whole.right[:, rows])
    sure = EntropyRule(threshold=0.3)
    assert np.array_equal(part.taken(sure).exits, whole.taken(sure).exits[rows])


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("O O", []),
        ("B-x I-x O", [Entity(0, 2, "x")]),
        ("O B-x", [Entity(1, 2, "x")]),
        ("B-x B-x", [Entity(0, 1, "x"), Entity(1, 2, "x")]),
        ("B-x I-y", [Entity(0, 1, "x"), Entity(1, 2, "y")]),
        ("I-x I-x O I-x", [Entity(0, 2, "x"), Entity(3, 4, "x")]),
        ("B-creative-work I-creative-work", [Entity(0, 2, "creative-work")]),
        ("", []),
    ],
)
def test_entities_are_runs_of_one_type(tags: str, entities: list[Entity]) -> None:
    assert entities_of(tags.split()) == entities


def test_parts_of_speech_are_no_entity_tags() -> None:
    assert are_entity_tags(["O", "B-person", "I-person"])
    assert not are_entity_tags(["NOUN", "VERB"])
    assert not are_entity_tags(["O", "B-person", "VERB"])
