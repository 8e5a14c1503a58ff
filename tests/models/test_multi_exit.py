"""Which exits and heads a model may have, and folders that hold no such model."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from models.errors import UnusableCheckpoint
from models.heads import AttentionHeadConfig, HeadConfig
from models.multi_exit import ExitConfig, MultiExitModel


def test_heads_of_all_kinds_are_stored_and_read() -> None:
    described = ExitConfig(exits=(1,), head=AttentionHeadConfig(kind="attention", width=16))
    assert ExitConfig.model_validate_json(described.model_dump_json()) == described
    of_two_kinds = ExitConfig(exits=(1, 2), last_head=HeadConfig(pooling="first"))
    assert [head.pooling for head in of_two_kinds.heads] == ["mean", "first"]
    assert ExitConfig.model_validate_json(of_two_kinds.model_dump_json()) == of_two_kinds
    with pytest.raises(ValidationError, match="whether they predict their error"):
        ExitConfig(exits=(1, 2), last_head=HeadConfig(uncertainty="pooler"))
    with pytest.raises(ValidationError, match="conv"):
        ExitConfig.model_validate({"exits": [1], "head": {"kind": "conv"}})
    # Old folders name no kind.
    old = {"exits": [1, 2], "head": {"dropout": 0.1, "pooler": True, "pooling": "mean"}}
    found = ExitConfig.model_validate(old)
    assert found.head == HeadConfig()
    assert found == ExitConfig.model_validate_json(found.model_dump_json())


@pytest.mark.parametrize(("task", "pooling"), [("token", "mean"), ("single_label", "tokens")])
def test_labelling_tokens_and_not_pooling_need_each_other(task: str, pooling: str) -> None:
    with pytest.raises(ValidationError, match="need each other"):
        ExitConfig(exits=(1,), task=task, head=HeadConfig(pooling=pooling))


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
