import hashlib
import re
import socket
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from export import bundle as bundles
from export.chain.stages import Span
from export.errors import ExportFailed
from models.multi_exit import MultiExitModel
from serve.bundle.calibration import Calibration, ExitFigures, VariantCalibration
from serve.bundle.loader import Bundle, load_bundle
from serve.policy.ladder import Data
from tests.export.conftest import MakeFolder
from tests.support.tiny import LABELS, MAX_TOKENS, POLICY, SPECIAL


def test_manifest_describes_the_model(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert manifest.labels == LABELS
    assert manifest.exit_layers == (1, 2, 3, 4)
    assert (manifest.width, manifest.max_tokens) == (32, MAX_TOKENS)
    assert manifest.pad_id == SPECIAL.index("[PAD]")
    assert (manifest.head.pooling, manifest.head.pooler) == ("mean", True)
    assert manifest.token_types
    assert manifest.policy == POLICY
    assert manifest.source.model == "tiny-model"


def test_manifest_hashes_every_other_file(bundle: Bundle) -> None:
    files = [path for path in bundle.folder.rglob("*") if path.is_file()]
    hashes = {
        path.relative_to(bundle.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
    del hashes["manifest.json"]
    assert bundle.manifest.files == hashes
    assert {"README.md", "tokenizer.json", "segments/int8/04.onnx"} <= hashes.keys()


def test_parity_of_both_variants_is_recorded(bundle: Bundle) -> None:
    exact, coarse = (bundle.manifest.variants[p].parity for p in ("fp32", "int8"))
    assert exact.max_logit_error < 1e-5 < coarse.max_logit_error < 2
    assert exact.label_agreement == 1
    assert coarse.label_agreement > 0.8
    assert exact.rows == coarse.rows > 50


def test_no_file_contains_local_paths_or_the_host_name(bundle: Bundle, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    places = [root, Path.home(), tmp_path.parent, Path(np.__file__).parents[1]]
    host = re.compile(rf"\b{re.escape(socket.gethostname())}\b".encode())
    for path in (path for path in bundle.folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for place in map(str, places):
            assert place.encode() not in content, f"{path.name} contains {place}"
        assert b".py" not in content, f"{path.name} names a source file"
        # The host's name may occur in the bytes of a weight by chance.
        assert path.suffix in (".onnx", ".bin") or not host.search(content)


@pytest.fixture
def damage_exit_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one weight of the segment of exit 2 wrong by a hundredth after it is traced."""
    build = bundles.build_segment

    def build_damaged(model: MultiExitModel, span: Span) -> ir.Model:
        segment = build(model, span)
        if span.exit_layer == 2:
            weights = next(
                value for name, value in segment.graph.initializers.items() if "pooler.bias" in name
            )
            array = weights.const_value.numpy().copy()
            array[0] += 0.01
            weights.const_value = ir.tensor(array, name=weights.name)
        return segment

    monkeypatch.setattr(bundles, "build_segment", build_damaged)


@pytest.mark.usefixtures("damage_exit_2")
def test_a_wrong_weight_fails_the_export_and_leaves_nothing(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
    planned = bundles.plan(make_folder(), ("fp32",), (2, 4))
    with pytest.raises(ExportFailed, match=r"exit 2: the fp32 segments differ .* by 0\.\d+ "):
        bundles.write(planned, tmp_path / "bundle")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_subset_of_the_exits(make_folder: MakeFolder, tmp_path: Path, bundle: Bundle) -> None:
    figures = VariantCalibration(
        data=Data(name="dev", rows=10, sha256="0" * 64),
        exits=tuple(ExitFigures(layer=layer, accuracy=0.9) for layer in (1, 2, 3, 4)),
    )
    calibration = Calibration(variants={"fp32": figures})
    folder = make_folder(calibration=calibration.model_dump_json(exclude_none=True))
    steps: list[str] = []

    planned = bundles.plan(folder, ("fp32",), (4, 2))
    written = bundles.write(planned, tmp_path / "half", steps.append)

    loaded = load_bundle(tmp_path / "half")
    assert loaded.manifest == written
    assert written.exit_layers == (2, 4)
    assert list(written.variants) == ["fp32"]
    assert "fast" not in written.policy.profiles, "it leaves at layer 1"
    assert "balanced" in written.policy.profiles
    kept = loaded.calibration.variants["fp32"]
    assert [figures.layer for figures in kept.exits] == [2, 4]
    assert any("'fast'" in note for note in planned.notes)
    assert len(steps) == planned.num_steps == 3
    # Two layers in one segment are the same two layers.
    assert bundle.manifest.variants["fp32"].parity.rows == written.variants["fp32"].parity.rows
