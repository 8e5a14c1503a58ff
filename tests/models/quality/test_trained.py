"""Certifying on texts that the training has seen."""

from pathlib import Path

import pytest

from models.cascade.add import add_small
from models.errors import UnusableData
from models.quality.card import TRAINING, replace_between
from models.quality.data import data_of, read_file
from models.quality.source import read_tokens
from models.quality.trained import TRAINED, write_trained
from serve.bundle.calibration import Calibration, ExitFigures, VariantCalibration
from serve.bundle.loader import CALIBRATION, load_bundle, sha256_of
from serve.tokenization.tokenizer import Text
from tests.models.quality.conftest import MakeBundle, MakeData, listed, run, write_texts


def with_card(folder: Path, data: Path) -> Path:
    """Say in a bundle's card that this file trained the model."""
    said = f"over 400 rows of `a/train.tsv` (sha256 `{sha256_of(data)[:12]}...`)"
    (folder / "MODEL.md").write_text(replace_between("# Mine", TRAINING, said))
    return listed(folder, "MODEL.md")


@pytest.mark.parametrize("as_tuning", [False, True])
def test_the_training_file_certifies_nothing(
    make_bundle: MakeBundle, make_data: MakeData, as_tuning: bool
) -> None:
    data = make_data()
    folder = with_card(make_bundle(), data)
    if as_tuning:  # it may choose rules, for others certify them
        run(folder, make_data(name="others"), tuning=data)
        return
    with pytest.raises(UnusableData, match="trained on this very file"):
        run(folder, data)


def test_the_file_that_trained_the_small_model_in_front_certifies_nothing(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data()
    add_small(folder, with_card(make_bundle(), data))
    with pytest.raises(UnusableData, match="trained on this very file"):
        run(folder, data)


@pytest.mark.parametrize(("num_seen", "taken"), [(0, True), (2, True), (6, False), (300, False)])
def test_more_than_one_percent_of_texts_of_the_training_are_refused(
    make_bundle: MakeBundle, make_data: MakeData, num_seen: int, taken: bool
) -> None:
    folder, data = make_bundle(), make_data(num_texts=800)
    bundle, tuning = load_bundle(folder), make_data(name="tuning", num_texts=50)
    texts = {each.tokens: each.text for each in read_file(data, bundle, labelled=False).texts}
    certifying = [text.text for text in texts.values()][:300]
    # In training they stood with other blanks, and one of them often.
    trained = [Text(f" {text}  ") for text in certifying[:num_seen]]
    others = [Text("w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13")]
    write_trained(folder, read_tokens(bundle, [*trained, *trained, *others]), 64)
    listed(folder, TRAINED)
    write_texts(data, [*certifying, *certifying[:1] * 50])
    if not taken:
        with pytest.raises(UnusableData, match=f"of 300 different texts that certify {num_seen}"):
            run(folder, data, labelled=False, tuning=tuning)
        return
    _, said = run(folder, data, labelled=False, tuning=tuning)
    assert (f"that certify {num_seen} were seen" in said) == bool(num_seen)


@pytest.mark.parametrize(
    ("name", "content"), [(TRAINED, b"PK\3\4 no archive"), (TRAINED, b""), ("MODEL.md", None)]
)
def test_files_of_a_training_may_be_anything(
    make_bundle: MakeBundle, make_data: MakeData, name: str, content: bytes | None
) -> None:
    folder = make_bundle()
    path = folder / name
    if content is None:
        with path.open("wb") as file:
            file.truncate(1 << 32)  # takes no room on the disk
    else:
        path.write_bytes(content)
    with pytest.raises(UnusableData, match=name):
        run(folder, make_data())


def test_the_file_that_measured_the_model_in_training_is_named(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data()
    bundle = load_bundle(folder)
    figures = VariantCalibration(data=data_of(data, 1), exits=(ExitFigures(layer=4, accuracy=1),))
    calibration = Calibration(variants={"fp32": figures})
    (folder / CALIBRATION).write_text(calibration.model_dump_json())
    listed(folder, CALIBRATION)
    assert bundle.calibration != load_bundle(folder).calibration
    assert "measured the model in training" in run(folder, data)[1]
    assert "measured the model" not in run(folder, make_data(name="others"), tuning=data)[1]
