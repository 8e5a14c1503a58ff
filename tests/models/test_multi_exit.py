"""Multi-exit models: heads, pooling, exits, saving."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from models.errors import UnusableCheckpoint
from models.heads import masked_mean
from models.multi_exit import ExitConfig, MultiExitModel, Pooling

IDS = torch.tensor([[2, 4, 10, 3], [2, 7, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


def test_saved_model_loads_back_and_is_also_a_transformers_encoder(
    make_model: Callable[..., MultiExitModel], tmp_path: Path
) -> None:
    model = make_model()
    model.save(tmp_path)
    again = MultiExitModel.load(tmp_path)
    for before, after in zip(model(IDS, MASK), again(IDS, MASK), strict=True):
        assert torch.equal(before, after)
    assert (again.exits, again.labels) == ((1, 2, 3), ["negative", "positive"])
    assert not again.training
    encoder = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    hidden = encoder(input_ids=IDS, attention_mask=MASK).last_hidden_state
    last = model.heads[-1](hidden, MASK)
    torch.testing.assert_close(last, model(IDS, MASK)[-1], atol=1e-5, rtol=0)
    modes = [(tmp_path / f).stat().st_mode for f in ("config.json", "model.safetensors")]
    assert modes[0] & 0o044 == modes[1] & 0o044, "other users may read the weights"


def test_model_saved_in_half_precision_loads_in_float32_within_its_rounding(
    make_model: Callable[..., MultiExitModel], tmp_path: Path
) -> None:
    model = make_model()
    model.save(tmp_path / "full")
    model.save(tmp_path / "half", torch.float16)
    again = MultiExitModel.load(tmp_path / "half")
    assert {p.dtype for p in again.parameters()} == {torch.float32}
    for name, value in again.state_dict().items():
        assert torch.equal(value, model.state_dict()[name].half().float()), name
    sizes = [(tmp_path / f / "model.safetensors").stat().st_size for f in ("half", "full")]
    assert sizes[0] < 0.6 * sizes[1]


def test_exit_subset_gives_the_logits_of_its_layers(
    make_model: Callable[..., MultiExitModel],
) -> None:
    full, subset = make_model(), make_model(exits=(1, 3))
    subset.encoder.load_state_dict(full.encoder.state_dict())
    subset.heads[0].load_state_dict(full.heads[0].state_dict())
    subset.heads[1].load_state_dict(full.heads[2].state_dict())
    expected = full(IDS, MASK)
    found = subset(IDS, MASK)
    assert len(found) == 2
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[2])


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_padding_and_batch_mates_do_not_change_a_row(
    make_model: Callable[..., MultiExitModel], pooling: Pooling
) -> None:
    model = make_model(pooling=pooling)
    together = model(IDS, MASK)
    alone = model(IDS[1:, :3], MASK[1:, :3])
    for batched, single in zip(together, alone, strict=True):
        torch.testing.assert_close(batched[1:], single, atol=1e-5, rtol=0)


def test_masked_mean_averages_real_tokens_only() -> None:
    hidden = torch.tensor([[[1.0], [3.0], [100.0]]])
    assert masked_mean(hidden, torch.tensor([[1, 1, 0]])).item() == 2.0


@pytest.mark.parametrize(
    ("exits", "message"),
    [
        ((2, 1, 3), "ascending"),
        ((1, 1, 3), "ascending"),
        ((0, 3), "counted from 1"),
        ((1, 2), "the last exit must be the last layer, 3, not 2: use 1,2,3"),
        ((1, 4), "the last exit must be the last layer, 3, not 4: use 1,3"),
    ],
)
def test_impossible_exits_are_refused(
    make_model: Callable[..., MultiExitModel], exits: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        MultiExitModel(make_model().encoder, ExitConfig(exits=exits))


def test_folders_without_a_multi_exit_model_are_refused(
    make_encoder: Callable[[], Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"config\.json has no 'offramp' key"):
        MultiExitModel.load(make_encoder())
    with pytest.raises(UnusableCheckpoint, match=r"config\.json is missing"):
        MultiExitModel.load(tmp_path)


def test_weights_that_do_not_fit_the_config_are_refused(
    make_model: Callable[..., MultiExitModel], tmp_path: Path
) -> None:
    make_model().save(tmp_path / "three")
    make_model(exits=(1, 3)).save(tmp_path / "two")
    three = (tmp_path / "three" / "model.safetensors").read_bytes()
    weights = (tmp_path / "two" / "model.safetensors").read_bytes()
    (tmp_path / "three" / "model.safetensors").write_bytes(weights)
    with pytest.raises(UnusableCheckpoint, match=r"heads\.2\.classifier\.bias is missing"):
        MultiExitModel.load(tmp_path / "three")
    (tmp_path / "two" / "model.safetensors").write_bytes(three)
    with pytest.raises(UnusableCheckpoint, match=r"the weights hold heads\.2\."):
        MultiExitModel.load(tmp_path / "two")
