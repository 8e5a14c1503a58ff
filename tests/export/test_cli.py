import subprocess
import sys
from pathlib import Path

import pytest

from export.cli import export
from serve.bundle.loader import load_bundle
from serve.errors import OfframpError
from tests.export.conftest import MakeFolder, offramp


def test_the_command_writes_a_bundle_and_says_so(make_folder: MakeFolder, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    result = offramp(export, make_folder(), "--out", out, "--exits", 4, "--precision", "int8")
    assert result.exit_code == 0
    assert result.stdout.strip() == str(out)
    assert "note: profile 'fast' was dropped" in result.stderr
    assert "int8: largest logit error" in result.stderr
    assert "the model was compared with transformers 5" in result.stderr
    assert "Warning" not in result.stderr, "the exporter is kept quiet"
    manifest = load_bundle(out).manifest
    assert (manifest.exit_layers, list(manifest.variants)) == ((4,), ["int8"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--precision", "bf16"], "--precision 'bf16': must be some of fp32, int8, fp16"),
        (["--precision", ","], "must be some of"),
        (["--exits", "2,last"], "--exits '2,last': must be layers such as 2,4,6"),
    ],
)
def test_wrong_options_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(OfframpError, match=message):
        offramp(export, tmp_path, "--out", tmp_path / "bundle", *options)


def test_help_needs_no_torch() -> None:
    code = "import sys, export.cli; assert not {'torch', 'onnx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
