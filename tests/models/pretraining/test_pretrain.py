"""`offramp pretrain` from the command line."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, BertConfig, BertModel
from typer.testing import Result

from models.encoders.families import read_encoder
from models.multi_exit import MultiExitModel
from models.training.training_run import TrainingRun
from tests.models.conftest import offramp, refusal
from tests.support.originals.elasticbert import ElasticBert
from tests.support.wordpiece import save_tokenizer, wordpiece

SUBJECTS = ["cats", "dogs", "birds", "fish"]
VERBS = {"cats": "purr", "dogs": "bark", "birds": "sing", "fish": "swim"}
WORDS = ["[MASK]", *SUBJECTS, *VERBS.values(), "first", "then", "all", "day"]
Write = Callable[..., Path]
Pretrain = Callable[..., Result]


def documents(count: int = 64) -> list[str]:
    """Return lines in which the verb hangs on the subject, and words tell the sentences' order."""
    lines: list[str] = []
    for i in range(count):
        one, other = SUBJECTS[i % 4], SUBJECTS[(i // 4) % 4]
        rest = " all" * (i // 16) + " day"
        lines += [f"first {one} {VERBS[one]}{rest}", f"then {other} {VERBS[other]}{rest}", ""]
    return lines


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    config = BertConfig(
        vocab_size=4 + len(WORDS), num_hidden_layers=3, max_position_embeddings=40, **sizes
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "encoder")
    save_tokenizer(wordpiece(WORDS), tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.fixture
def run(encoder: Path, write_data: Write, tmp_path: Path) -> Pretrain:
    """Return a function that runs `offramp pretrain` on tiny files; options may be changed."""
    options: dict[str, object] = {
        "encoder": encoder,
        "text": write_data("text.txt", documents()),
        "out": tmp_path / "out",
        "epochs": 2,
        "lr": 3e-3,
        "batch_size": 8,
        "max_tokens": 32,
    }
    return lambda *flags, **changed: offramp("pretrain", *flags, **(options | changed))


def figures(output: str, when: str, name: str) -> list[float]:
    """Return the figure of every exit that the command prints."""
    line = re.search(rf"^{when}, per exit: .*?{name}  ((?:\d: [\d.]+\s*)+)", output, re.M)
    assert line, output
    return [float(value) for value in re.findall(r"\d: ([\d.]+)", line[1])]


def test_every_exit_learns_words_and_order_and_the_folder_is_an_encoder(
    run: Pretrain, tmp_path: Path
) -> None:
    result = run(epochs=33)
    assert result.exit_code == 0, result.output
    before = figures(result.output, "before", "their loss")
    after = figures(result.output, "after", "their loss")
    assert len(after) == 3
    assert all(new < 0.5 * old for old, new in zip(before, after, strict=True)), result.output
    assert min(figures(result.output, "after", "order told %")) > 90
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        *("README.md", "config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    card = (out / "README.md").read_text()
    assert "offramp pretrain --encoder" in card
    assert "| exit layer | masked words named %, before | masked words named %, after |" in card
    plain = AutoModel.from_pretrained(out, add_pooling_layer=False).state_dict()
    read = read_encoder(out, ["no", "yes"]).state_dict()
    assert all(torch.equal(value, plain[name]) for name, value in read.items())


def test_a_classifier_is_trained_on_what_was_pretrained(
    run: Pretrain, write_data: Write, tmp_path: Path
) -> None:
    assert run(exits="2,3", max_tokens=64).exit_code == 0
    again = run(encoder=tmp_path / "out", out=tmp_path / "again", epochs=1)
    assert "note:" not in again.output
    rows = write_data("t.tsv", ["label\ttext", *(f"{i % 2}\tcats purr" for i in range(8))])
    files = {"train": rows, "dev": rows, "out": tmp_path / "model"}
    trained = offramp("train", encoder=tmp_path / "again", epochs=1, max_tokens=32, **files)
    assert trained.exit_code == 0, trained.output
    model = MultiExitModel.load(tmp_path / "model")
    assert model.exits == (1, 2, 3)
    # And a model with exits is an encoder again.
    assert run(encoder=tmp_path / "model", out=tmp_path / "third", epochs=1).exit_code == 0
    assert "offramp" not in json.loads((tmp_path / "third" / "config.json").read_text())


def test_a_stopped_run_reaches_the_same_weights(
    run: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run().exit_code == 0
    whole = load_file(tmp_path / "out" / "model.safetensors")
    step = TrainingRun.step

    def interrupted(self: TrainingRun) -> float:
        if self.steps_done == 6:
            signal.raise_signal(signal.SIGTERM)
        return step(self)

    other = tmp_path / "stopped"
    with monkeypatch.context() as patched:
        patched.setattr(TrainingRun, "step", interrupted)
        stopped = run(out=other)
    assert stopped.exit_code != 0
    assert "the same command with --resume goes on" in stopped.output
    assert "is of an unfinished run" in refusal(run(out=other))
    assert "with other settings or data" in refusal(run("--resume", out=other, lr=1e-3))
    assert run("--resume", out=other).exit_code == 0
    resumed = load_file(other / "model.safetensors")
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []
    assert not (other / "training.ckpt").exists()


def test_texts_without_documents_teach_masked_words_only_and_that_is_said(
    run: Pretrain, write_data: Write
) -> None:
    lines = [line for line in documents() if line]
    result = run(text=write_data("lines.txt", lines))
    assert result.exit_code == 0, result.output
    assert "the texts have no order to tell, so exits learn masked words only" in result.output
    assert "order told" not in result.output


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"exits": "1,2"}, r"--exits: the last exit must be the last layer, 3, not 2"),
        ({"lr": 0}, r"lr: .*greater than 0"),
    ],
)
def test_options_that_cannot_be_are_refused(
    run: Pretrain, changed: dict[str, object], message: str
) -> None:
    assert re.search(message, refusal(run(**changed)))


def test_an_encoder_without_a_mask_and_its_own_folder_are_refused(
    run: Pretrain, make_encoder: Callable[[], Path], encoder: Path
) -> None:
    assert "the encoder's folder, which would be overwritten" in refusal(run(out=encoder))
    vocabulary = json.loads((encoder / "tokenizer.json").read_text())["model"]["vocab"]
    save_tokenizer(wordpiece([w for w in vocabulary if w[0] != "["]), encoder)
    assert "has no mask token, such as [MASK]" in refusal(run())


def pretrained(folder: Path, **config: object) -> Path:
    """Write an ElasticBERT as it was published: with poolers, and no classifiers."""
    system = ElasticBert(**config).without("classifiers.")
    for place, size in (("transform.dense", 32), ("decoder", 60)):
        system.draw.linear(f"cls.predictions.{place}", 32, size)
    system.draw.norm("cls.predictions.transform.LayerNorm", 32)
    system.state["cls.predictions.bias"] = system.state["cls.predictions.decoder.bias"]
    system.draw.linear("cls.seq_relationship", 32, 2)
    return system.save(folder)


@pytest.mark.parametrize("config", [{}, {"model_type": "elasticbert"}])
def test_the_published_elasticbert_is_trained_and_pretrained(
    config: dict[str, object], run: Pretrain, write_data: Write, tmp_path: Path
) -> None:
    folder = pretrained(tmp_path / "elastic", **config)
    lines = [f"w{i % 50} w{i % 7}" for i in range(40)]
    result = run(encoder=folder, text=write_data("w.txt", lines), out=tmp_path / "adapted")
    assert result.exit_code == 0, result.output
    assert "holds no head that names words" not in result.output
    written = json.loads((tmp_path / "adapted" / "config.json").read_text())
    assert (written["model_type"], written["layer_norm_eps"]) == ("bert", 1e-8)
    rows = write_data("e.tsv", ["label\ttext", *(f"{i % 2}\tw{i % 2}" for i in range(8))])
    for start in (folder, tmp_path / "adapted"):
        files = {"train": rows, "dev": rows, "out": tmp_path / f"model-{start.name}"}
        trained = offramp("train", encoder=start, epochs=1, max_tokens=32, **files)
        assert trained.exit_code == 0, trained.output
