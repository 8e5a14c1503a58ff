"""What a model folder holds is its own: no link, no list of shards leads out of it."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from export.plan import plan
from models.checkpoints import load
from models.data.encoding import copy_tokenizer, encode
from models.data.examples import Example
from models.encoders.families import read_encoder
from models.errors import UnusableCheckpoint
from models.model_folder import read_calibration
from models.multi_exit import MultiExitModel
from models.weight_files import read_weights
from serve.errors import OfframpError
from tests.models.conftest import tiny_tokenizer

READERS: dict[str, Callable[[Path], object]] = {
    "export": lambda folder: plan(folder, ("fp32",)),
    "inspect, evaluate, a teacher": load,
    "train": lambda folder: read_encoder(folder, ["no", "yes"]),
    "a model's measuring": MultiExitModel.load,
    "encoding": lambda folder: encode(folder, [Example("the film", None, 0)], 8),
    "a trained model's tokenizer": lambda folder: copy_tokenizer(folder, folder.parent, 8),
    "calibrate": read_calibration,
}
FILES = ["README.md", "config.json", "tokenizer.json", "policy.json", "recording.npy", "vocab.txt"]

TEMPLATES = ["chat_template.jinja", "additional_chat_templates/x.jinja"]


@pytest.fixture
def folder(make_model: Callable[..., MultiExitModel], tmp_path: Path) -> Path:
    """A model folder that everything can be read from."""
    made = tmp_path / "cache" / "model"
    make_model().save(made)
    tiny_tokenizer().save(str(made / "tokenizer.json"))
    (made / "README.md").write_text("# a model")
    return made


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", FILES)
def test_link_that_leads_out_of_the_folder_is_refused(
    folder: Path, name: str, reader: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    if (folder / name).exists():
        (folder / name).rename(secret)
    else:
        secret.write_text("{}")
    (folder / name).symlink_to("../../secret")
    with pytest.raises(OfframpError, match=rf"{name} lies outside the model's folder"):
        READERS[reader](folder)


@pytest.mark.parametrize("name", TEMPLATES)
def test_template_that_transformers_would_read_elsewhere_is_refused(
    folder: Path, name: str, tmp_path: Path
) -> None:
    if "/" in name:
        (tmp_path / "elsewhere").mkdir()
        (folder / name).parent.symlink_to(tmp_path / "elsewhere")
        (tmp_path / "elsewhere/x.jinja").write_text("x")
    else:
        (folder / name).symlink_to("/dev/zero")
    with pytest.raises(UnusableCheckpoint, match="lies outside the model's folder"):
        load(folder)


@pytest.mark.parametrize("reader", READERS)
def test_cache_of_the_hub_is_read_through_its_links(folder: Path, reader: str) -> None:
    cache = folder.parent / "models--some--model"
    snapshot, blobs = cache / "snapshots" / "abc", cache / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(blobs / f"{number}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    READERS[reader](snapshot)


def test_link_out_of_the_blobs_is_refused(folder: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "model" / "snapshots" / "abc"
    shutil.copytree(folder, snapshot)
    (tmp_path / "model" / "blobs").symlink_to("/etc")
    (snapshot / "README.md").unlink()
    (snapshot / "README.md").symlink_to("../../blobs/hostname")
    with pytest.raises(UnusableCheckpoint, match=r"README\.md lies outside"):
        load(snapshot)


def test_link_within_the_folder_and_a_link_to_the_folder_are_followed(folder: Path) -> None:
    (folder / "README.md").rename(folder / "card.md")
    (folder / "README.md").symlink_to("card.md")
    (folder.parent / "alias").symlink_to("model")
    load(folder.parent / "alias")


@pytest.mark.parametrize(
    ("shard", "reason"),
    [
        ("../model.safetensors", "lies outside the model's folder"),
        ("/etc/hostname", "lies outside the model's folder"),
        ("inside/model.safetensors", "lies outside the model's folder"),
        ("a\0b", "lies outside the model's folder"),
        ("absent.safetensors", "which is no file there"),
        ("pipe.safetensors", "which is no file there"),
        ("model.safetensors.index.json", "which must end in .safetensors or .bin"),
    ],
)
@pytest.mark.parametrize("reader", ["export", "train", "a model's measuring"])
def test_list_of_shards_names_weights_in_the_folder(
    folder: Path, shard: str, reason: str, reader: str
) -> None:
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    (folder / "inside").symlink_to("..")
    os.mkfifo(folder / "pipe.safetensors")
    index = {"weight_map": {"one": shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(OfframpError) as caught:
        READERS[reader](folder)
    assert reason in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}'])
def test_list_of_shards_of_another_shape_is_refused(folder: Path, content: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(UnusableCheckpoint, match=r"index\.json: "):
        load(folder)


@pytest.mark.parametrize("name", [*FILES, "tokenizer.model", *TEMPLATES])
def test_no_file_of_any_size_and_no_pipe_is_read(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    with (folder / name).open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(UnusableCheckpoint, match=rf"{name} has 1099511627776 bytes; at most"):
        load(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UnusableCheckpoint, match=rf"{name} is no regular file"):
        load(folder)


def test_weights_beyond_the_machines_memory_are_not_read(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.truncate(1 << 43)
    with pytest.raises(UnusableCheckpoint, match="this machine has"):
        load(folder)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ('{"a": 1e999}', "1e999 is too large"),
        ("[1]", "expected a JSON object"),
        ('{"a": ' + "1" * 5000 + "}", "is not JSON"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_json_that_is_none_is_refused(folder: Path, name: str, text: str, reason: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(OfframpError) as caught:
        plan(folder, ("fp32",))
        copy_tokenizer(folder, folder.parent, 8)
        MultiExitModel.load(folder)
    assert reason in str(caught.value)


def test_pickled_tensor_that_the_file_does_not_hold_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1).expand(10**12)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UnusableCheckpoint, match="a is no plain tensor"):
        read_weights(tmp_path)
    torch.save({"b": torch.empty(3, device="meta")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UnusableCheckpoint, match="b is no plain tensor"):
        read_weights(tmp_path)


def test_pickled_weights_that_were_packed_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(100_000)}, tmp_path / "plain")
    with (
        zipfile.ZipFile(tmp_path / "plain") as plain,
        zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(UnusableCheckpoint, match="is a compressed archive"):
        read_weights(tmp_path)
