"""Recording bundles and models in PyTorch, row by row as if each ran alone."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from models.data.alignment import IGNORED
from models.data.examples import Target, Word
from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel
from models.recorded import BundleSource, TorchSource, recorded
from serve.bundle.loader import Bundle, load_bundle
from serve.engine.warm_up import steps
from serve.errors import InvalidRequest
from serve.rules.traits import Task
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.tokenizer import Text
from tests.models.conftest import WORDS, tiny_tokenizer
from tests.serve.support.task_bundles import EXITS, LABELS, Kind, write_task_bundle

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


def test_errors_that_heads_predict_are_recorded(tmp_path: Path) -> None:
    bundle = load_bundle(write_task_bundle(tmp_path, Kind("single_label", learned=True)))
    found = recorded(BundleSource(bundle, CPU), TEXTS)
    assert found.uncertainty is not None
    assert len(np.unique(found.uncertainty)) > 100


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
