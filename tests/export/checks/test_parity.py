from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from torch import Tensor

from export.chain.stages import spans
from export.checks.parity import ExitGap, check, compare, summary
from export.checks.samples import odd_batches
from export.errors import ExportFailed
from models.heads import HeadOutput
from models.multi_exit import MultiExitModel
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.rules.traits import Traits
from serve.runtime.cpu_runner import CpuRunner

CLOSE: dict[Precision, float] = {"fp32": 1e-5, "int8": 1.5}


@pytest.fixture
def chain(bundle: Bundle) -> CpuRunner:
    return CpuRunner(bundle, "fp32", 2)


def test_the_bundle_is_the_model_on_odd_shapes(chain: CpuRunner, model: MultiExitModel) -> None:
    batches = odd_batches(max_tokens=64, vocabulary=200)
    assert {batch.input_ids.shape for batch in batches} == {
        (rows, tokens) for rows in (1, 3) for tokens in (1, 7, 33, 64)
    }
    gaps = compare(chain, model, spans(model.exits), batches)
    assert [gap.exit_layer for gap in gaps] == [1, 2, 3, 4]
    # Eight batches; from three rows one is dropped between segments, down to one.
    assert [gap.rows for gap in gaps] == [16, 12, 8, 8]
    assert all(gap.max_error < 1e-5 and gap.agreed == gap.rows for gap in gaps)
    check(gaps, "fp32")


def test_another_model_is_found_out(chain: CpuRunner, model: MultiExitModel) -> None:
    shifted = compare(chain, _Shifted(model), spans(model.exits), odd_batches(64, 200))
    with pytest.raises(ExportFailed, match=r"exit 3: the fp32 segments differ .* by 0\.01"):
        check(shifted, "fp32")


class _Shifted(NamedTuple):
    """The model, with a number added to the third exit's logits."""

    model: MultiExitModel
    by: float = 0.01

    def exit_outputs(self, *batch: Tensor) -> list[HeadOutput]:
        said = self.model.exit_outputs(*batch)
        return [*said[:2], HeadOutput(said[2].logits + self.by), said[3]]

    @property
    def traits(self) -> Traits:
        return self.model.traits


def test_of_several_labels_all_must_be_the_models(
    chain: CpuRunner, model: MultiExitModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = replace(model.traits, task="multi_label")
    monkeypatch.setattr(MultiExitModel, "traits", property(lambda _: several))
    far = _Shifted(model, 100.0)
    gaps = compare(chain, far, spans(model.exits), odd_batches(64, 200))
    # The best label is the same: all have grown by as much.
    assert [gap.agreed == gap.rows for gap in gaps] == [True, True, False, True]


@pytest.mark.parametrize(
    ("precision", "close", "far"),
    [("fp32", 1e-5, 2e-4), *((*of, far) for of in CLOSE.items() for far in (np.nan, np.inf))],
)
def test_an_exit_that_is_far_from_the_model_is_named(
    precision: Precision, close: float, far: float
) -> None:
    check([ExitGap(1, close, 3, 3)], precision)
    with pytest.raises(ExportFailed, match=f"exit 2: the {precision} segments"):
        check([ExitGap(1, close, 3, 3), ExitGap(2, far, 3, 3)], precision)


def test_summary_counts_rows_once_and_agreement_over_all_exits() -> None:
    found = summary([ExitGap(1, 0.1, 9, 10), ExitGap(2, 0.3, 8, 8)])
    assert (found.max_logit_error, found.rows) == (0.3, 10)
    assert found.label_agreement == 17 / 18
