"""Writing ladders: into the bundle they hold for, and into a folder of its model.

Beside a ladder is what the exits said of the texts that certify it. Each file that is replaced is
whole at all times, and all fit together.
"""

import io
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json, to_json

from models.model_folder import as_file, read_calibration
from models.quality.card import card_bytes, read_card, with_certificates
from models.quality.recorded import Recorded
from serve.bounded_file import read_file
from serve.bundle.calibration import Calibration
from serve.bundle.loader import CALIBRATION, MANIFEST, MOST_BYTES, Bundle, sha256_of
from serve.bundle.manifest import Manifest
from serve.bundle.recording import CERTIFYING, MOST_CERTIFYING_BYTES, certifying_files
from serve.policy.document import Policy
from serve.policy.ladder import OF_REFERENCE, Ladder

README = "README.md"


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
    contents = {CALIBRATION: as_file(calibration).encode(), **recording_of(ladder, certifying)}
    older = certifying_files(ladder).values()
    kept = {name: digest for name, digest in manifest.files.items() if name not in older}
    manifest = manifest.model_copy(update={"files": kept})
    return _stored(replace(bundle, calibration=calibration), manifest, contents)


def store_policy(bundle: Bundle, policy: Policy) -> Bundle:
    """Write another policy into a bundle, and into its card; return the bundle as it now is."""
    return _stored(bundle, bundle.manifest.model_copy(update={"policy": policy}), {})


def store_before(
    bundle: Bundle, changed: Mapping[str, Any], contents: Mapping[str, bytes]
) -> Bundle:
    """Write what is before the first layer into a bundle.

    Its certificates with another table, or another small model, no longer hold.

    Args:
        bundle: as it is on disk.
        changed: the `table` or the `small` of its manifest.
        contents: files by name, of those that are new.
    """
    kept, files = [], dict(bundle.manifest.files)
    for ladder in bundle.calibration.ladders:
        if all(getattr(ladder, name) is None for name in changed):
            kept.append(ladder)
        else:
            files = {n: h for n, h in files.items() if n not in certifying_files(ladder).values()}
    calibration = bundle.calibration.model_copy(update={"ladders": tuple(kept)})
    if calibration != bundle.calibration:
        contents = {**contents, CALIBRATION: as_file(calibration).encode()}
    manifest = bundle.manifest.model_copy(update={**changed, "files": files})
    return _stored(replace(bundle, calibration=calibration), manifest, contents)


def _stored(bundle: Bundle, manifest: Manifest, contents: Mapping[str, bytes]) -> Bundle:
    """Write files, the card where there is one, and the manifest."""
    if README in manifest.files:
        contents = {**contents, README: _card(bundle.folder, bundle.calibration, manifest.policy)}
    hashes = {name: sha256(content).hexdigest() for name, content in contents.items()}
    manifest = manifest.model_copy(update={"files": manifest.files | hashes})
    replace_files(bundle.folder, {**contents, MANIFEST: as_file(manifest).encode()})
    return replace(bundle, manifest=manifest)


def store_in_model(folder: Path, ladder: Ladder, certifying: Recorded | None = None) -> None:
    """Write a ladder into a model folder, from which export takes it into the same variant.

    See `store`.
    """
    calibration = with_ladder(read_calibration(folder), ladder)
    contents = {CALIBRATION: as_file(calibration).encode()}
    if (folder / README).is_file():
        contents[README] = _card(folder, calibration)
    for name in certifying_files(ladder).values():
        (folder / name).unlink(missing_ok=True)  # of other texts, perhaps
    replace_files(folder, contents | recording_of(ladder, certifying))


def _card(folder: Path, calibration: Calibration, policy: Policy | None = None) -> bytes:
    """Return the card with the rules that a calibration certifies."""
    wish = policy.wish_for(None) if policy else None
    return card_bytes(with_certificates(read_card(folder / README), calibration.ladders, wish))


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
    """Return the ladder with what the older one says of a reference, if it says nothing itself.

    Rungs that the older one has for the reference alone come with it.
    """
    new = {rung.rule: rung for rung in ladder.rungs}
    same_path = older.temperatures == ladder.temperatures
    if ladder.reference or not older.reference or not same_path:
        return ladder
    if not new.keys() <= {rung.rule for rung in older.rungs}:
        return ladder
    rungs = []
    for old in older.rungs:
        of_reference = [c for c in old.certificates if c.loss in OF_REFERENCE]
        own = new.get(old.rule, old).certificates
        lost = OF_REFERENCE if ladder.metric else (*OF_REFERENCE, "metric")
        kept = (*(c for c in own if c.loss not in lost), *of_reference)
        rungs.append(old.model_copy(update={"certificates": kept}))
    return ladder.model_copy(update={"rungs": tuple(rungs), "reference": older.reference})


def _basis(ladder: Ladder) -> tuple[object, ...]:
    before = ladder.table, ladder.small
    return ladder.data, ladder.num_tuning, ladder.score_temperatures, *before


def _variant(ladder: Ladder) -> tuple[str, int, tuple[int, ...], str]:
    # The most exits first.
    return ladder.precision, -len(ladder.exits), ladder.exits, ladder.weights


def replace_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Replace files of a folder in this order; SIGINT and SIGTERM wait until all are replaced.

    Until then nothing has changed. Only a kill or a crash between two renames leaves some of the
    files new and others old, see `repair`.
    """
    places = {name: folder / name for name in contents}
    fresh = {name: path.with_name(f".{path.name}.new") for name, path in places.items()}
    try:
        for name, path in fresh.items():
            with path.open("wb") as file:
                file.write(contents[name])
                file.flush()
                os.fsync(file.fileno())
        with _signals_deferred():
            for name, path in fresh.items():
                rename(path, places[name])
    finally:
        for path in fresh.values():
            path.unlink(missing_ok=True)


def repair(folder: Path) -> bool:
    """Bring a manifest up to date after a calibration was killed while it replaced files.

    Only the hashes of what a calibration writes are corrected, and only if it can be read.
    Loading the bundle verifies, and explains, everything else.

    Returns:
        Whether the manifest was out of date.
    """
    try:
        manifest = from_json(read_file(folder / MANIFEST, MOST_BYTES[MANIFEST]))
        content = read_file(folder / CALIBRATION, MOST_BYTES[CALIBRATION])
        Calibration.model_validate_json(content)
        files = manifest["files"]
        ours = [CALIBRATION, README, *(n for n in files if n.startswith(CERTIFYING))]
        listed = {name: sha256_of(folder / name) for name in ours}
        found = {name: sha for name, sha in listed.items() if files.get(name, sha) != sha}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False
    if not found:
        return False
    manifest["files"] = files | found
    replace_files(folder, {MANIFEST: to_json(manifest, indent=2)})
    return True


def rename(source: Path, target: Path) -> None:
    """Put a file in the place of another."""
    source.replace(target)


@contextmanager
def _signals_deferred() -> Iterator[None]:
    came: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        came.append(number)

    previous = {n: signal.signal(n, defer) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)
