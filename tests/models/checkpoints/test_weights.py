"""Weights from every kind of file, and none that would run code."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from models.checkpoints import UnusableCheckpoint
from models.model_files import check_files
from models.weight_files import read_shapes, read_weights

TENSORS = {"one": torch.arange(3.0), "two": torch.ones(2, 2)}


def as_safetensors(folder: Path) -> None:
    save_file(TENSORS, folder / "model.safetensors")


def in_shards(folder: Path) -> None:
    for name, tensor in TENSORS.items():
        save_file({name: tensor}, folder / f"{name}.safetensors")
    index = {"weight_map": {name: f"{name}.safetensors" for name in TENSORS}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def pickled(folder: Path) -> None:
    torch.save(TENSORS, folder / "pytorch_model.bin")


def pickled_long_ago(folder: Path) -> None:
    path = folder / "pytorch_model.bin"
    torch.save(TENSORS, path, _use_new_zipfile_serialization=False)


def nested(folder: Path) -> None:
    torch.save({"state_dict": TENSORS, "epoch": 3}, folder / "pytorch_model.bin")


def from_data_parallel(folder: Path) -> None:
    torch.save({f"module.{k}": v for k, v in TENSORS.items()}, folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    "wrapper",
    ["_orig_mod.", "model.", "model._orig_mod.", "module.", "module._orig_mod.net.", "bert."],
)
@pytest.mark.parametrize("more", [None, "criterion.weight", "class_weights", "n_averaged"])
def test_names_lose_what_the_model_was_wrapped_in(
    wrapper: str, more: str | None, tmp_path: Path
) -> None:
    names = ("bert.encoder.layer.0.output.dense.weight", "classifier.weight")
    beside = {more: torch.ones(3)} if more else {}
    wrapped = {f"{wrapper}{name}": torch.ones(1) for name in names}
    save_file(wrapped | beside, tmp_path / "model.safetensors")
    assert set(read_weights(tmp_path)) == {*names, *beside}


@pytest.mark.parametrize("name", ["elasticbert.encoder.layer.0.x", "bert.pooler.dense.bias"])
def test_an_encoders_own_name_is_no_wrapper(name: str, tmp_path: Path) -> None:
    save_file({name: torch.ones(1)}, tmp_path / "model.safetensors")
    assert set(read_weights(tmp_path)) == {name}


def test_a_part_that_was_compiled_alone_has_its_own_name(tmp_path: Path) -> None:
    compiled = {"bert._orig_mod.encoder.x": torch.ones(1), "classifier.weight": torch.ones(1)}
    save_file(compiled, tmp_path / "model.safetensors")
    assert set(read_weights(tmp_path)) == {"bert.encoder.x", "classifier.weight"}


@pytest.mark.parametrize(
    "save", [as_safetensors, in_shards, pickled, pickled_long_ago, nested, from_data_parallel]
)
def test_weights_are_read_from_every_kind_of_file(
    save: Callable[[Path], None], tmp_path: Path
) -> None:
    save(tmp_path)
    found = read_weights(tmp_path)
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)


def test_half_precision_is_widened_and_counts_stay_counts(tmp_path: Path) -> None:
    tensors = {"a": torch.ones(2).half(), "x.position_ids": torch.ones(2).long()}
    save_file(tensors, tmp_path / "model.safetensors")
    found = read_weights(tmp_path)
    assert [each.dtype for each in found.values()] == [torch.float32, torch.int64]


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize("read", [read_weights, read_shapes])
@pytest.mark.parametrize(
    "kind",
    [torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool, torch.float8_e4m3fn,
     torch.float8_e5m2, torch.complex64],
)  # fmt: skip
def test_a_type_whose_values_are_not_the_weights_is_refused(
    kind: torch.dtype, read: Callable[[Path], object], pickled: bool, tmp_path: Path
) -> None:
    tensors = TENSORS | {"x.weight": torch.ones(2, 2).to(kind)}
    if pickled:
        torch.save(tensors, tmp_path / "pytorch_model.bin")
    else:
        save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UnusableCheckpoint, match=r"x\.weight is of type .* quantized .* give the"):
        read(tmp_path)


def test_old_names_of_norms_are_made_new(tmp_path: Path) -> None:
    old = {"x.LayerNorm.gamma": torch.ones(1), "y.LayerNorm.beta": torch.ones(1)}
    torch.save(old, tmp_path / "pytorch_model.bin")
    assert set(read_weights(tmp_path)) == {"x.LayerNorm.weight", "y.LayerNorm.bias"}


class Harmful:
    """Unpickling it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_would_run_something_is_refused_and_nothing_runs(
    zipped: bool, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    content = {"weight": torch.ones(1), "payload": Harmful(trace)}
    torch.save(content, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UnusableCheckpoint, match="nothing else in it is run"):
        read_weights(tmp_path)
    assert not trace.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_damaged_file_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"not weights")
    with pytest.raises(UnusableCheckpoint, match=f"{name} cannot be read"):
        read_weights(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "tokenizer.json"])
def test_a_pointer_of_git_lfs_says_how_to_get_the_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    with pytest.raises(UnusableCheckpoint, match=f"{name} is a pointer of Git LFS.*git lfs pull"):
        check_files(tmp_path)


def test_what_pytorch_advises_about_pickles_is_not_passed_on(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "pytorch_model.bin")
    with pytest.raises(
        UnusableCheckpoint, match=r"plain weights.*: it holds torch\.nn\.\S*Linear\."
    ) as e:
        read_weights(tmp_path)
    assert "\x1b" not in str(e.value)


def test_something_else_than_a_state_dict_is_refused(tmp_path: Path) -> None:
    torch.save([torch.ones(1)], tmp_path / "pytorch_model.bin")
    with pytest.raises(UnusableCheckpoint, match="is no state dict"):
        read_weights(tmp_path)


def test_a_folder_without_weights_lists_what_is_read(tmp_path: Path) -> None:
    with pytest.raises(UnusableCheckpoint, match=r"expected model\.safetensors or"):
        read_weights(tmp_path)
