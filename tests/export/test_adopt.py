from itertools import islice, product
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import Result

from export.adopt import adopt as steps
from export.adopt.cli import adopt
from export.adopt.texts import LEAST, LEAST_TEACHING, Parts, split, write_answers
from models.data.datasets import read_dataset
from models.data.examples import Word
from models.encoders.families import build_encoder
from models.errors import UnusableData
from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel
from models.quality.calibrate import CalibrationJob, calibrate
from models.quality.recorded import recorded
from models.quality.source import TorchSource
from serve.bundle.loader import load_bundle
from serve.errors import OfframpError, TargetOutOfReach
from serve.policy.target import Target, TargetChoice
from serve.rules.signals import decisions
from serve.rules.traits import Task
from serve.tokenization.tokenizer import Text
from tests.export.conftest import offramp
from tests.support.tiny import WORDS, tiny_model, tiny_tokenizer, write_tiny_classifier

SAID = "agreement with mine per exit", "run the same command again", "this machine is busy"


@pytest.fixture
def classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("models.quality.load.TURN_S", 0.02)
    return write_tiny_classifier(tmp_path / "mine", num_hidden_layers=3, intermediate_size=48)


def texts(path: Path, number: int) -> Path:
    """Write a log: some texts come again, with other blanks too."""
    lines = list(islice((" ".join(words) for words in product(WORDS, WORDS)), number - 60))
    again = [*lines[:20], *(line.replace(" ", "  ") for line in lines[:40])]
    path.write_text("\n".join([*lines, *again, ""]))
    return path


def call(classifier: Path, data: Path, out: Path, *options: str) -> Result:
    return offramp(adopt, classifier, "--texts", data, "--out", out, *options)


def test_a_stopped_run_goes_on_to_a_bundle_that_is_certified_from_the_classifier(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = texts(tmp_path / "traffic.txt", LEAST + 100), tmp_path / "bundle"

    with monkeypatch.context() as patched:
        patched.setattr(steps, "plan", Mock(side_effect=KeyboardInterrupt))  # of the third step
        patched.setattr("os.getloadavg", lambda: (1000.0, 0.0, 0.0))
        stopped = call(classifier, data, out)
    assert stopped.exit_code != 0
    assert all(words in stopped.stderr for words in SAID)
    assert not out.exists()

    with pytest.raises(OfframpError):
        call(classifier, texts(tmp_path / "other.txt", LEAST + 99), out)

    finished = call(classifier, data, out, "--max-disagreement", "20%")
    assert (finished.exit_code, finished.stderr.count("done before")) == (0, 2)
    assert '"from":"reference"' in finished.stdout
    assert f"offramp serve {out}" in finished.stderr
    bundle = load_bundle(out)
    assert bundle.manifest.exit_layers == (1, 2, 3)
    target = Target.model_validate({"max_disagreement": 0.2, "from": "reference"})
    assert bundle.manifest.policy.default == TargetChoice(target=target)
    assert not bundle.calibration.variants, "agreement with the classifier is no accuracy"
    assert "mine's own answers" in (out / "MODEL.md").read_text()
    for precision in bundle.manifest.variants:
        ladder = bundle.ladder(precision)
        assert ladder
        assert ladder.reference
        assert ladder.reference.name == "mine"
        assert ladder.num_tuning + ladder.num_certifying == steps_of(out)

    check_that_taught_texts_certify_nothing(out)
    with pytest.raises(TargetOutOfReach, match="whole"):  # all steps were done before
        call(classifier, data, out, "--max-disagreement", "0%")


def check_that_taught_texts_certify_nothing(out: Path) -> None:
    taught = out.with_name(f"{out.name}.adopt") / "teaching.jsonl"
    other = taught.with_name("other.jsonl")
    other.write_text(taught.read_text() + '{"text": "one more"}\n')
    for file, said in ((taught, "trained on this very file"), (other, "were seen in the training")):
        job = CalibrationJob(out, (file,), labelled=False)
        with pytest.raises(UnusableData, match=said):
            list(calibrate(job, Console(quiet=True)))


def steps_of(out: Path) -> int:
    """Return how many texts were kept to calibrate."""
    lines = (out.with_name(f"{out.name}.adopt") / "calibrating.jsonl").read_text().splitlines()
    return len(lines)


def test_what_cannot_be_adopted_is_refused_before_the_work(
    classifier: Path, tmp_path: Path, bundle_folder: Path
) -> None:
    data = texts(tmp_path / "traffic.txt", LEAST)
    few = texts(tmp_path / "few.txt", LEAST - 1)
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    cases: list[tuple[Path, Path, Path, list[str]]] = [
        (classifier, few, tmp_path / "a", []),
        (classifier, data, full, []),
        (classifier, data, bundle_folder, []),
        (bundle_folder, data, tmp_path / "b", []),
        (tmp_path, data, tmp_path / "c", []),
        *(
            (classifier, data, tmp_path / "d", ["--max-disagreement", wrong])
            for wrong in ("little", "60%", "-1%", "nan")
        ),
    ]
    for folder, given, out, options in cases:
        with pytest.raises(OfframpError):
            call(folder, given, out, *options)
    assert not list(tmp_path.glob("*.adopt")), "no work was begun"
    assert (full / "notes.txt").read_text() == "mine"
    assert load_bundle(bundle_folder)
    (tmp_path / "e.adopt").mkdir()
    (tmp_path / "e.adopt" / "adopt.json").write_text("[" * 20_000)
    with pytest.raises(OfframpError):
        call(classifier, data, tmp_path / "e")


def test_each_text_is_in_one_part_and_no_part_of_a_pair_that_certifies_is_elsewhere() -> None:
    pairs = [Text(f"question {i // 2}", f"answer {i}") for i in range(8000)]
    parts = divided([*pairs, *pairs])
    assert len({*parts.teaching, *parts.measuring}) == len(parts.teaching) + len(parts.measuring)
    assert len(parts.calibrating) == round(0.45 * 16_000), "what comes twice counts twice"
    certifying = {part for pair in parts.calibrating for part in pair}
    for pair in (*parts.teaching, *parts.measuring):
        assert certifying.isdisjoint(pair)
    assert parts == divided([*pairs, *pairs][::-1]), "the order of the texts changes nothing"


def test_pairs_that_all_share_a_text_are_refused() -> None:
    with pytest.raises(UnusableData, match=str(LEAST_TEACHING)):
        divided([Text("the same question", f"answer {i}") for i in range(LEAST)])


def divided(given: list[Text]) -> Parts:
    return split(given, [hash(text) for text in given])


@pytest.mark.parametrize("task", ["single_label", "multi_label", "regression", "token"])
def test_answers_of_every_task_are_read_as_labels(task: Task, tmp_path: Path) -> None:
    settings = tiny_model().config
    if task == "regression":
        settings.num_labels = 1
    head = HeadConfig(pooling="tokens" if task == "token" else "mean")
    exits = ExitConfig(exits=(4,), head=head, task=task)
    torch.manual_seed(1)
    model = MultiExitModel(build_encoder(settings), exits).eval()
    source = TorchSource(model, tiny_tokenizer().to_str(), 64)
    given = [Text(f"{WORDS[i]} {WORDS[i + 1]} {WORDS[2 * i]}") for i in range(40)]
    path = tmp_path / "answers.jsonl"
    write_answers(path, source, given)
    examples = read_dataset(path, task, model.labels).examples
    assert [e.text_a for e in examples] == [text.text for text in given]
    found = recorded(source, given)
    logits = found.logits[-1]
    answers = logits[:, 0] if task == "regression" else decisions(task, logits)
    for row, example in enumerate(examples):
        if task == "token":
            words = example.label
            assert isinstance(words, list)
            tags = [word.tag for word in words if isinstance(word, Word)]
            assert tags == answers[row][1 : 1 + len(tags)].tolist()
        else:
            np.testing.assert_allclose(example.label, answers[row], rtol=1e-6)
