"""What goes into a bundle, and what is refused before anything is written."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export import bundle as bundles
from export.errors import ExportFailed
from models.encoders.bert import BertBackbone
from serve.bundle.recording import RECORDING
from serve.errors import OfframpError
from serve.policy.document import Policy
from tests.export.conftest import MakeFolder
from tests.support.json_files import rewrite

SOMETIMES = '{"default": {"rule": "sometimes"}}'


def remove_exits(folder: Path) -> None:
    rewrite(folder / "config.json", lambda config: config.pop("offramp"))


def config(**fields: Any) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder / "config.json", lambda found: found.update(fields))


def enlarge_tokenizer(folder: Path) -> None:
    surplus = {"surplus": 5000}
    rewrite(folder / "tokenizer.json", lambda document: document["model"]["vocab"].update(surplus))


def promise_a_recording(folder: Path) -> None:
    content = io.BytesIO()
    np.save(content, np.ones((4, 2, 3), np.float32))
    promised = content.getvalue().replace(b"(4, 2, 3)", b"(4, 9999999999, 3)")
    (folder / RECORDING).write_bytes(promised)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (config(pad_token_id=-1), "pad_token_id is -1, and the model has embeddings for ids"),
        (config(pad_token_id=200), "pad_token_id is 200, and the model has embeddings for ids"),
        (config(id2label={"0": "a", "1": "a", "2": "b"}), "id2label names 'a' for the labels 0, 1"),
        (config(id2label={"0": "\ud800", "1": "a", "2": "b"}), "surrogates not allowed"),
        (enlarge_tokenizer, "has the token 'surplus' with id 5000, and the model has"),
        (promise_a_recording, "recording.npy is no array"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "holds no tokenizer: "),
        (remove_exits, "no classifier that is recognised"),
        (lambda folder: (folder / "policy.json").write_text(SOMETIMES), "policy.json: default: "),
        (lambda folder: folder.rename(f"{folder}-elsewhere"), "model: no such folder"),
    ],
)
def test_what_no_bundle_can_hold_is_refused(
    make_folder: MakeFolder, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    folder = make_folder()
    damage(folder)
    with pytest.raises(OfframpError) as caught:
        bundles.write(bundles.plan(folder, ("fp32",)), tmp_path / "bundle")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 0}, "--layers 0: the model has 4 layers"),
        ({"layers": 5}, "--layers 5: the model has 4 layers"),
        ({"last_ramp": True}, r"--last-ramp is for DeeBERT; .* is Offramp"),
        ({"wanted": (2, 5)}, "no exit after layer 5: the model has exits at 1, 2"),
        ({"wanted": (1, 2)}, "the last layer, 4, must be among .*: use 1,2,4"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_the_long_comparison(
    make_folder: MakeFolder,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setattr("export.plan.compare", lambda *_: pytest.fail("compared"))
    with pytest.raises(ExportFailed, match=message):
        bundles.plan(make_folder(), ("fp32",), **options)


def test_a_model_cut_short_keeps_its_first_exits_and_no_figures(make_folder: MakeFolder) -> None:
    folder = make_folder()
    (folder / RECORDING).write_bytes(b"of the whole model")
    planned = bundles.plan(folder, ("fp32",), layers=2)
    assert planned.model.exits == (1, 2)
    assert planned.model.backbone.depth == 2
    assert not planned.whole
    assert "cut to the first 2 of 4 layers" in planned.notes
    assert "logits of BertModel through the last exit's head to " in planned.compared


def test_a_model_without_policy_never_exits_early(make_folder: MakeFolder) -> None:
    folder = make_folder()
    (folder / "policy.json").unlink()
    assert bundles.plan(folder, ("fp32",)).policy == Policy()


def test_a_computation_that_transformers_does_not_know_is_refused(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs are compared with the model here, so a model that computes wrongly would pass."""
    right = BertBackbone.layer
    monkeypatch.setattr(BertBackbone, "layer", lambda *given: 1.001 * right(*given))
    with pytest.raises(
        ExportFailed, match=r"differs from transformers: in .* by BertModel through"
    ):
        bundles.plan(make_folder(), ("fp32",))
