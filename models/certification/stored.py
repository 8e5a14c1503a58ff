"""Writing ladders: into the bundle they hold for, and into a folder of its model.

Beside a ladder is what the exits said of the texts that certify it.
"""

import io
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.certification.bundle_files import README, replace_files
from models.certification.card import with_certificates
from models.model_folder import as_file, read_calibration
from models.quality.recorded import Recorded
from serve.bundle.calibration import Calibration
from serve.bundle.loader import CALIBRATION, MANIFEST, Bundle
from serve.bundle.manifest import Manifest
from serve.bundle.recording import MOST_CERTIFYING_BYTES, certifying_files
from serve.policy.ladder import OF_REFERENCE, Ladder


def store(
    bundle: Bundle, manifest: Manifest, ladder: Ladder, certifying: Recorded | None = None
) -> Bundle:
    """Write a ladder and a manifest into a bundle; return the bundle as it now is.

    Args:
        bundle: as it is on disk, with all its exits.
        manifest: its own, with another policy perhaps.
        ladder: takes the place of an older one of just this variant.
        certifying: the texts that certify it, to be kept; None to keep none.
    """
    calibration = with_ladder(bundle.calibration, ladder)
    contents = _contents(bundle.folder, calibration, README in manifest.files)
    contents |= recording_of(ladder, certifying)
    hashes = {name: sha256(content).hexdigest() for name, content in contents.items()}
    older = certifying_files(ladder).values()
    kept = {name: digest for name, digest in manifest.files.items() if name not in older}
    manifest = manifest.model_copy(update={"files": kept | hashes})
    replace_files(bundle.folder, {**contents, MANIFEST: as_file(manifest).encode()})
    return replace(bundle, manifest=manifest, calibration=calibration)


def recording_of(ladder: Ladder, certifying: Recorded | None) -> dict[str, bytes]:
    """Return the files of a ladder's recording, by name; none where they would be too large."""
    if certifying is None:
        return {}
    fields = (certifying.logits, certifying.counted, certifying.uncertainty)
    named = zip(certifying_files(ladder).values(), fields, strict=True)
    found = {name: array for name, array in named if array is not None}
    if sum(array.nbytes for array in found.values()) > MOST_CERTIFYING_BYTES:
        return {}
    return {name: _as_npy(array) for name, array in found.items()}


def _as_npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def store_in_model(folder: Path, ladder: Ladder, certifying: Recorded | None = None) -> None:
    """Write a ladder into a model folder, from which export takes it into the same variant.

    See `store`.
    """
    calibration = with_ladder(read_calibration(folder), ladder)
    contents = _contents(folder, calibration, (folder / README).is_file())
    for name in certifying_files(ladder).values():
        (folder / name).unlink(missing_ok=True)  # of other texts, perhaps
    replace_files(folder, contents | recording_of(ladder, certifying))


def _contents(folder: Path, calibration: Calibration, has_card: bool) -> dict[str, bytes]:
    """Return the files that a calibration changes."""
    contents = {CALIBRATION: as_file(calibration).encode()}
    if has_card:
        card = (folder / README).read_text("utf-8")
        contents[README] = with_certificates(card, calibration.ladders).encode()
    return contents


def with_ladder(calibration: Calibration, ladder: Ladder) -> Calibration:
    """Return the calibration with a ladder in the place of an older one of just this variant.

    What the older one has certified for other flags, and from a reference, stays if it was by the
    same texts.
    """
    older = next((each for each in calibration.ladders if _variant(each) == _variant(ladder)), None)
    if older and _basis(older) == _basis(ladder):
        kept = [each for each in older.decisions if not ladder.decided(each.flag)]
        ladder = ladder.model_copy(update={"decisions": (*kept, *ladder.decisions)})
        ladder = _with_reference(ladder, older)
    others = [each for each in calibration.ladders if _variant(each) != _variant(ladder)]
    ladders = sorted([*others, ladder], key=_variant)
    return calibration.model_copy(update={"ladders": tuple(ladders)})


def dropped(older: Ladder | None, ladder: Ladder) -> list[str]:
    """Return which kinds of promises a variant had, and has not any more, one sentence each."""
    if older is None:
        return []
    lost = [f"--flag {each.flag}" for each in older.decisions if not ladder.decided(each.flag)]
    lost += ["max_loss"] if older.metric and not ladder.metric else []
    lost += ["the reference"] if older.reference and not ladder.reference else []
    return [
        f"{ladder.precision}: what {older.num_certifying} texts had certified of {each} is gone"
        for each in lost
    ]


def _with_reference(ladder: Ladder, older: Ladder) -> Ladder:
    """Return the ladder with what the older one says of a reference, if it says nothing itself."""
    pairs = list(zip(ladder.rungs, older.rungs, strict=False))
    same = len(ladder.rungs) == len(older.rungs) and all(a.rule == b.rule for a, b in pairs)
    if ladder.reference or not older.reference or not same:
        return ladder
    rungs = [
        new.model_copy(
            update={
                "reference_disagreement": old.reference_disagreement,
                "certificates": (
                    *new.certificates,
                    *(c for c in old.certificates if c.loss in OF_REFERENCE),
                ),
            }
        )
        for new, old in pairs
    ]
    return ladder.model_copy(update={"rungs": tuple(rungs), "reference": older.reference})


def _basis(ladder: Ladder) -> tuple[object, ...]:
    return ladder.data, ladder.num_tuning, ladder.score_temperatures


def _variant(ladder: Ladder) -> tuple[str, int, tuple[int, ...], str]:
    # The most exits first.
    return ladder.precision, -len(ladder.exits), ladder.exits, ladder.weights
