"""Running a model on a data set."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from models.data.alignment import IGNORED
from models.data.encoding import EncodedRow
from models.evaluation.predictions import predict
from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel
from serve.rules.traits import Task


@pytest.mark.parametrize(
    ("task", "labels"),
    [("single_label", "ab"), ("multi_label", "ab"), ("regression", "a"), ("token", "abc")],
)
def test_every_row_gets_the_logits_it_gets_alone_and_the_training_mode_is_kept(
    make_model: Callable[..., MultiExitModel],
    make_rows: Callable[..., list[EncodedRow]],
    task: Task,
    labels: str,
) -> None:
    model = make_model(task=task, labels=tuple(labels)).train()
    targets = {"single_label": 1, "multi_label": (1.0, 0.0), "regression": 0.5}
    rows = [
        EncodedRow(r.ids, r.types, targets.get(task, [1] * len(r.ids)), [True] * len(r.ids))
        for r in make_rows(70)
    ]
    found = predict(model, rows)
    assert found.traits == model.traits
    assert model.training
    model.eval()
    for index in (0, 31, 69):
        ids = torch.tensor([rows[index].ids])
        alone = torch.stack(model(ids, torch.ones_like(ids)))[:, 0].detach().numpy()
        inner = (slice(ids.shape[1]),) if task == "token" else ()
        assert found.logits[:, index][:, *inner] == pytest.approx(alone, abs=1e-5)
        if task == "token":
            assert found.in_text[index].sum() == ids.shape[1]
            assert set(found.gold[index, ids.shape[1] :].tolist()) <= {IGNORED}
        else:
            assert np.array_equal(found.gold[index], np.float32(targets[task]))


def test_the_errors_that_heads_predict_are_kept(
    make_model: Callable[..., MultiExitModel], make_rows: Callable[..., list[EncodedRow]]
) -> None:
    encoder = make_model().encoder
    head = HeadConfig(uncertainty="pooler")
    model = MultiExitModel(encoder, ExitConfig(exits=(1, 3), head=head)).eval()
    done: list[int] = []
    found = predict(model, make_rows(70), done.append)
    assert sum(done) == 70
    assert found.uncertainty is not None
    ids = torch.tensor([make_rows(70)[5].ids])
    with torch.inference_mode():
        alone = [out.uncertainty.item() for out in model.exit_outputs(ids, torch.ones_like(ids))]
    assert found.uncertainty[:, 5] == pytest.approx(alone, abs=1e-6)
