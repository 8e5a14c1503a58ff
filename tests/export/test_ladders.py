"""Certified rules that a model folder carries into its bundles."""

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from export import bundle as bundles
from export.chain.segments import build_segment
from export.errors import ExportFailed
from models.quality.recorded import Recorded
from models.quality.stored import store, store_in_model
from models.table.files import write_table
from models.table.learn import Learned
from serve.bundle.loader import Bundle, load_bundle, sha256_of
from serve.bundle.manifest import Precision
from serve.policy.ladder import Ladder
from serve.rules.traits import Traits
from tests.export.conftest import MakeFolder
from tests.serve.support.ladders import BOLD, NEVER, certificate, rung
from tests.serve.support.ladders import ladder as made_up
from tests.serve.support.tables import BUCKETS, VOCABULARY
from tests.support.tiny import LABELS, tiny_model


def ladder(precision: Precision, weights: str, exits: tuple[int, ...] = (1, 2, 3, 4)) -> Ladder:
    """Return rules never to leave, and to leave at once: one percent of 900 texts may differ."""
    first, last = ([float(exit_ == exits[at]) for exit_ in exits] for at in (0, -1))
    sure = certificate("disagreement", 0.01, 0) | {"n": 900}
    rungs = [rung(NEVER, last, 0), rung(BOLD, first, 0, sure)]
    of_exits = {"exits": exits, "temperatures": [1.0] * len(exits), "rungs": rungs}
    return Ladder.model_validate(made_up(precision, weights, num_certifying=900, **of_exits))


def weights_of(bundle: Bundle) -> dict[str, str]:
    variants = bundle.manifest.variants
    return {p: bundle.manifest.files[variant.weights] for p, variant in variants.items()}


@pytest.fixture(scope="module", autouse=True)
def _traced_once() -> Iterator[None]:
    """Trace each segment once, as all tests here export one model; `bundle` is not made so."""
    with pytest.MonkeyPatch.context() as patch:
        traced = cache(lambda span: build_segment(tiny_model(), span))
        patch.setattr(bundles, "build_segment", lambda _, span: traced(span))
        yield


@pytest.fixture
def model_folder(make_folder: MakeFolder, bundle: Bundle) -> Path:
    """Return the shared bundle's model, certified on that bundle."""
    folder, weights = make_folder(), weights_of(bundle)
    store_in_model(folder, ladder("int8", weights["int8"]))
    store_in_model(folder, ladder("int8", weights["int8"], (1, 4)))
    store_in_model(folder, ladder("fp32", "0" * 64))
    return folder


def test_the_same_model_gives_the_same_weights_and_so_its_ladders_hold_again(
    model_folder: Path, bundle: Bundle
) -> None:
    out, notes = model_folder.parent / "again", list[str]()
    bundles.write(bundles.plan(model_folder, ("fp32", "int8")), out, note=notes.append)
    again = load_bundle(out)
    assert weights_of(again) == weights_of(bundle)
    assert again.ladder("int8") == ladder("int8", weights_of(bundle)["int8"])
    assert again.presenting((1, 4)).ladder("int8")
    assert again.ladder("fp32") is None
    assert notes == [
        "fp32: certified rules for exits [1, 2, 3, 4] were dropped: they are of other weights; "
        "`offramp calibrate` certifies the bundle"
    ]
    assert "at most 1 % (delta 0.05, n 900)" in (out / "README.md").read_text()


def test_what_the_exits_said_of_the_certifying_texts_comes_along(
    model_folder: Path, bundle: Bundle
) -> None:
    weights = weights_of(bundle)
    own = ladder("int8", weights["int8"])
    said = np.random.default_rng(0).standard_normal((4, 900, len(LABELS))).astype(np.float32)
    traits = Traits(own.exits, LABELS)
    texts = Recorded(traits, own.temperatures, said, num_tokens=np.full(900, 9))
    store_in_model(model_folder, own, texts)
    out = model_folder.parent / "second"
    bundles.write(bundles.plan(model_folder, ("fp32", "int8")), out)
    found = load_bundle(out).certifying("int8")
    assert found is not None
    assert np.array_equal(found.logits, said)
    assert load_bundle(out).presenting((1, 4)).certifying("int8") is None
    store_in_model(model_folder, own)
    bundles.write(bundles.plan(model_folder, ("int8",)), out.with_name("third"))
    assert load_bundle(out.with_name("third")).certifying("int8") is None


def test_a_models_table_comes_along_and_a_ladder_only_with_the_table_that_it_was_certified_with(
    model_folder: Path, bundle: Bundle
) -> None:
    zeros = np.zeros((VOCABULARY + BUCKETS, len(LABELS)), np.float16)
    write_table(model_folder, Learned(zeros, BUCKETS, (0.0, 1.0, 0.0), 2.0, 0.8))
    own = ladder("int8", weights_of(bundle)["int8"])
    with_table = own.after(sha256_of(model_folder / "table.npy"), None)
    store_in_model(model_folder, with_table)
    out = model_folder.parent / "tabled"
    bundles.write(bundles.plan(model_folder, ("int8",)), out)
    found = load_bundle(out)
    assert found.manifest.traits.table_temperature == 2.0
    assert found.ladder("int8") == with_table
    write_table(model_folder, Learned(zeros + 1, BUCKETS, (0.0, 1.0, 0.0), 2.0, 0.8))
    notes = list[str]()
    bundles.write(bundles.plan(model_folder, ("int8",)), out.with_name("other"), note=notes.append)
    assert any("they are of another table" in note for note in notes)
    assert bundles.plan(model_folder, ("int8",), layers=2).table is None


def test_ladders_of_exits_or_precisions_that_are_not_exported_are_dropped(
    model_folder: Path,
) -> None:
    out, notes = model_folder.parent / "again", list[str]()
    bundles.write(bundles.plan(model_folder, ("fp32",), (2, 4)), out, note=notes.append)
    assert not load_bundle(out).calibration.ladders
    assert sorted(note.partition("were dropped: ")[2].partition(";")[0] for note in notes) == [
        "the exits are [2, 4]",
        "the precision is not exported",
        "the precision is not exported",
    ]


def test_certified_rules_of_the_bundle_that_is_replaced_are_not_dropped_without_a_word(
    make_folder: MakeFolder, bundle_folder: Path, tmp_path: Path
) -> None:
    folder, notes = make_folder(), list[str]()
    out = shutil.copytree(bundle_folder, tmp_path / "bundle")
    planned = bundles.plan(folder, ("fp32",))
    bundles.write(planned, out)  # nothing is lost
    bundle = load_bundle(out)
    found = ladder("fp32", weights_of(bundle)["fp32"])
    store(bundle, bundle.manifest, found)
    with pytest.raises(
        ExportFailed,
        match=r"is calibrated, .*: fp32 with exits at 1, 2, 3, 4 \(certified by 900 texts of "
        r"made/up\.tsv, at most 1 % and up\)\. .* by --force",
    ):
        bundles.write(planned, out)
    assert load_bundle(out).ladder("fp32") == found
    bundles.write(planned, out, note=notes.append, force=True)
    assert load_bundle(out).ladder("fp32") is None
    assert "replaced with its certified rules: fp32 with exits at 1, 2, 3, 4" in notes[0]


def test_a_model_that_has_the_certified_rules_too_may_be_exported_again_until_its_weights_change(
    model_folder: Path, bundle_folder: Path
) -> None:
    out = shutil.copytree(bundle_folder, model_folder.parent / "mine")
    calibrated = load_bundle(out)
    own = ladder("int8", weights_of(calibrated)["int8"])
    store(calibrated, calibrated.manifest, own)
    bundles.write(bundles.plan(model_folder, ("int8",)), out)
    assert load_bundle(out).ladder("int8") == own
    with pytest.raises(ExportFailed, match=r"mine is calibrated, .*: int8 with exits at 1, 2"):
        bundles.write(bundles.plan(model_folder, ("fp32",)), out)
    assert load_bundle(out).ladder("int8")
