"""Writing ladders: into the bundle they hold for, and into a folder of its model."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ValidationError

from models.certification.bundle_files import README, replace_files
from models.certification.card import with_certificates
from models.errors import TrainingFailed
from models.model_files import check_files
from serve.bundle.calibration import Calibration
from serve.bundle.loader import CALIBRATION, MANIFEST, Bundle
from serve.bundle.manifest import Manifest
from serve.policy.ladder import Ladder
from serve.validation import explain


def store(bundle: Bundle, manifest: Manifest, ladder: Ladder) -> Bundle:
    """Write a ladder and a manifest into a bundle; return the bundle as it now is.

    Args:
        bundle: as it is on disk, with all its exits.
        manifest: its own, with another policy perhaps.
        ladder: takes the place of an older one of just this variant.
    """
    calibration = with_ladder(bundle.calibration, ladder)
    contents = {CALIBRATION: _json(calibration)}
    card = bundle.folder / README
    if README in manifest.files:
        text = with_certificates(card.read_text("utf-8"), calibration.ladders)
        contents[README] = text.encode()
    hashes = {name: sha256(content).hexdigest() for name, content in contents.items()}
    manifest = manifest.model_copy(update={"files": manifest.files | hashes})
    replace_files(bundle.folder, {**contents, MANIFEST: _json(manifest)})
    return replace(bundle, manifest=manifest, calibration=calibration)


def store_in_model(folder: Path, ladder: Ladder) -> None:
    """Write a ladder into a model folder, from which export takes it into the same variant."""
    calibration = with_ladder(read_calibration(folder), ladder)
    contents = {CALIBRATION: _json(calibration)}
    card = folder / README
    if card.is_file():
        text = with_certificates(card.read_text("utf-8"), calibration.ladders)
        contents[README] = text.encode()
    replace_files(folder, contents)


def read_calibration(folder: Path) -> Calibration:
    """Return a model folder's calibration; empty if there is none.

    Raises:
        TrainingFailed: the folder holds no model, or another calibration.
    """
    check_files(folder)
    if not (folder / "config.json").is_file():
        raise TrainingFailed(f"{folder} is no model folder: config.json is missing")
    path = folder / CALIBRATION
    if not path.is_file():
        return Calibration()
    try:
        return Calibration.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise TrainingFailed(f"{path}: {explain(error)}") from None


def with_ladder(calibration: Calibration, ladder: Ladder) -> Calibration:
    """Return the calibration with a ladder in the place of an older one of just this variant."""
    others = [each for each in calibration.ladders if _variant(each) != _variant(ladder)]
    ladders = sorted([*others, ladder], key=_variant)
    return calibration.model_copy(update={"ladders": tuple(ladders)})


def _variant(ladder: Ladder) -> tuple[str, int, tuple[int, ...], str]:
    # The most exits first.
    return ladder.precision, -len(ladder.exits), ladder.exits, ladder.weights


def _json(document: BaseModel) -> bytes:
    return (document.model_dump_json(indent=1, exclude_none=True) + "\n").encode()
