"""Folders that are no model's: the refusal names the cause, and the next step works."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

from models.checkpoints import UnusableCheckpoint, load
from models.encoders.families import read_encoder
from tests.support.originals.elasticbert import ElasticBert
from tests.support.originals.highway import BerxitAlbert, BerxitDistilBert, DeeBert, DeeRoberta
from tests.support.originals.pabee import Pabee
from tests.support.originals.system import Row, System

READERS: dict[str, Callable[[Path], object]] = {
    "load": load,
    "train": lambda folder: read_encoder(folder, ["no", "yes"]),
}


def refusal(folder: Path, read: Callable[[Path], object] = load) -> str:
    with pytest.raises(UnusableCheckpoint) as caught:
        read(folder)
    return str(caught.value)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
@pytest.mark.parametrize("beside_a_model", [True, False])
def test_an_adapter_is_merged_first(
    read: Callable[[Path], object], name: str, beside_a_model: bool, tmp_path: Path
) -> None:
    if beside_a_model:
        Pabee().save(tmp_path)
    stated = {"base_model_name_or_path": "base/model", "task_type": "TOKEN_CLS"}
    (tmp_path / name).write_text(json.dumps(stated))
    said = refusal(tmp_path, read)
    assert "holds an adapter (such as LoRA)" in said
    assert ".merge_and_unload().save_pretrained('OUT')" in said
    if name == "adapter_config.json":
        assert "AutoPeftModelForTokenClassification" in said
        assert "tokenizer of base/model" in said


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("beside", [(), ("config.json", "vocab.txt")])
def test_of_a_runs_folder_the_last_checkpoint_is_named(
    read: Callable[[Path], object], beside: tuple[str, ...], tmp_path: Path
) -> None:
    for steps in (500, 1000):
        Pabee(model_type="bert").save(tmp_path / f"checkpoint-{steps}")
    for name in beside:
        shutil.copy(tmp_path / "checkpoint-500" / name, tmp_path)
    assert f"such as {tmp_path / 'checkpoint-1000'}" in refusal(tmp_path, read)


def test_in_a_hub_cache_the_snapshot_is_named(tmp_path: Path) -> None:
    inner = Pabee().save(tmp_path / "snapshots" / "0123abc")
    assert f"such as {inner}" in refusal(tmp_path)


def test_a_lightning_checkpoint_is_a_pickle(tmp_path: Path) -> None:
    (tmp_path / "epoch=2.ckpt").write_bytes(b"")
    assert "a .ckpt is a pickle, and none is run" in refusal(tmp_path)


def test_setfits_encoder_can_be_trained(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=30, hidden_size=8, **sizes)).save_pretrained(tmp_path)
    (tmp_path / "model_head.pkl").write_bytes(b"")
    said = refusal(tmp_path)
    assert "is a SetFit model: its classifier is model_head.pkl, a pickle" in said
    assert f"offramp train --encoder {tmp_path}" in said
    assert read_encoder(tmp_path, ["no", "yes"]).config.num_hidden_layers == 2


@pytest.mark.parametrize(
    "make",
    [
        partial(ElasticBert, model_type="elasticbert"),
        *(ElasticBert, Pabee, DeeBert, DeeRoberta, BerxitAlbert, BerxitDistilBert),
    ],
)
def test_the_weights_names_tell_the_family_of_an_encoder_without_a_model_type(
    make: Callable[[], System], tmp_path: Path
) -> None:
    system, row = make(), Row([2, 7, 9, 3], [0, 0, 0, 0])
    encoder = read_encoder(system.save(tmp_path), ["no", "yes"])
    with torch.no_grad():
        found = encoder(torch.tensor([row.ids])).last_hidden_state[0]
    torch.testing.assert_close(found, system.hidden_states(row)[-1], atol=1e-5, rtol=0)
