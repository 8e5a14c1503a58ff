"""Reads a bundle, and verifies all of it before anything is loaded."""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from serve.bounded_file import UnfitFile, read_file
from serve.bundle.calibration import Calibration
from serve.bundle.manifest import FORMAT_VERSION, Manifest, Precision
from serve.bundle.recording import RECORDING, read_certifying, read_recording, read_table
from serve.errors import InvalidBundle, InvalidRequest, InvalidRule, Unavailable
from serve.policy.ladder import Ladder, ScoreTemperatures
from serve.rules.replay import Logits, Recording
from serve.rules.table import NgramTable
from serve.rules.traits import Traits, listed
from serve.validation import explain

_Model = TypeVar("_Model", bound=BaseModel)

MANIFEST, TOKENIZER, CALIBRATION = "manifest.json", "tokenizer.json", "calibration.json"
# Read as a whole. A manifest has 10 KB; a tokenizer of 250,000 tokens, 17 MB.
# Others are hashed, which takes a second for each GiB.
_MOST_OF_OTHERS = 32 << 30
_PART_BYTES = 1 << 20
MOST_BYTES = {MANIFEST: 4 << 20, CALIBRATION: 8 << 20, TOKENIZER: 64 << 20, RECORDING: 1 << 30}


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk.

    Attributes:
        name: the name that was given for the folder or a link to it; the model is served under it.
        folder: an absolute path, links followed.
        sha256: hash of the manifest's file, which names the sha256 of all other files.
        manifest: the manifest, with the active exits alone.
        calibration: figures of the same exits; empty if the bundle has none.
        written_s: when the manifest was written, in seconds since 1970.
        given: the absolute path that was given, which may be a link to the folder.
        small: the small model in front; None without one.
    """

    name: str
    folder: Path
    sha256: str
    manifest: Manifest
    calibration: Calibration
    written_s: int = 0
    given: Path = Path()
    small: "Bundle | None" = None

    def presenting(self, layers: Sequence[int]) -> "Bundle":
        """Return the bundle as if it had exits at these layers only.

        Raises:
            InvalidRequest: the bundle has no such exits, the last one is missing, or the bundle's
                own policy needs other exits.
        """
        manifest = self.manifest
        check_exits(layers, manifest.exit_layers, f"active exits {list(layers)} of {self.name}")
        if len(layers) == len(manifest.exits):
            return self
        try:
            manifest.policy.check(replace(manifest.traits, exits=tuple(layers)))
        except InvalidRule as error:
            raise InvalidRequest(
                f"active exits {list(layers)} of {self.name}: its policy needs others: {error}"
            ) from None
        exits = tuple(e for e in manifest.exits if e.layer in layers)
        fewer = manifest.model_copy(update={"exits": exits})
        return replace(self, manifest=fewer, calibration=self.calibration.on_exits(tuple(layers)))

    @property
    def version(self) -> str:
        """The beginning of `sha256`, by which answers and metrics name the bundle."""
        return self.sha256[:12]

    def read_table(self) -> NgramTable | None:
        """Return what may answer before the first layer, if the bundle has it.

        Raises:
            InvalidBundle: it is damaged or of another model.
        """
        manifest, table = self.manifest, self.manifest.table
        if table is None:
            return None
        path, num_labels = self.folder / table.file, len(manifest.labels)
        return read_table(path, table, num_labels, manifest.vocab_size)

    @property
    def recording(self) -> Logits | None:
        """Every exit's logits of the calibration data, if the bundle has them."""
        if RECORDING not in self.manifest.files:
            return None
        shape = len(self.manifest.exits), len(self.manifest.labels)
        return read_recording(self.folder / RECORDING, shape)

    def certifying(self, precision: Precision) -> Recording | None:
        """Return what a variant's exits said of the texts that certify it, if that was kept.

        Raises:
            InvalidBundle: it is damaged, or of other texts.
        """
        ladder = self._stored_ladder(precision)
        if ladder is None:
            return None
        return read_certifying(self.folder, self.manifest.files, ladder, self.traits(precision))

    @property
    def tokenizer_path(self) -> Path:
        """The `tokenizers` file."""
        return self.folder / TOKENIZER

    def ladder(self, precision: Precision) -> Ladder | None:
        """Return the certified rules of a variant with the present exits; None if it has none."""
        stored = self._stored_ladder(precision)
        return stored and stored.after(self._table_sha256, self.manifest.small)

    def _stored_ladder(self, precision: Precision) -> Ladder | None:
        """Return the variant's certified rules, perhaps made without its table or small model."""
        weights = self.manifest.files[self.manifest.variants[precision].weights]
        wanted = precision, weights, self.manifest.exit_layers
        found = (
            ladder
            for ladder in self.calibration.ladders
            if (ladder.precision, ladder.weights, ladder.exits) == wanted
            and ladder.table in (None, self._table_sha256)
            and ladder.small in (None, self.manifest.small)
        )
        return next(found, None)

    @property
    def _table_sha256(self) -> str | None:
        table = self.manifest.table
        return self.manifest.files[table.file] if table else None

    def temperatures(self, precision: Precision) -> tuple[float, ...]:
        """Return the temperature of each exit: as certified, else as the manifest says."""
        ladder = self.ladder(precision)
        return ladder.temperatures if ladder else tuple(e.temperature for e in self.manifest.exits)

    def score_temperatures(self, precision: Precision) -> ScoreTemperatures | None:
        """Return what maps each exit's scores to full depth's; None if nothing was fitted."""
        ladder = self.ladder(precision)
        return ladder.score_temperatures if ladder else None

    def traits(self, precision: Precision) -> Traits:
        """Return the model as exit rules see it, whose scores are shown as calibrated."""
        return replace(self.manifest.traits, score_temperatures=self.score_temperatures(precision))

    def segment_paths(self, precision: Precision) -> list[Path]:
        """Return the segments' files of one precision, first to last; for GPUs the bodies'."""
        return [self.folder / s.file for s in self.manifest.variants[precision].segments]

    def head_paths(self, precision: Precision) -> list[Path]:
        """Return the files of the exit heads of a variant for GPUs, first to last."""
        heads = [s.head for s in self.manifest.variants[precision].segments]
        return [self.folder / head.file for head in heads if head]

    def joined_path(self, precision: Precision) -> Path:
        """Return the file of one precision's joined graph.

        Raises:
            InvalidBundle: the variant is for GPUs and has none.
        """
        joined = self.manifest.variants[precision].joined
        if joined is None:
            raise InvalidBundle(f"{self.folder}: {precision} is for GPUs and has no joined graph")
        return self.folder / joined

    def weights_path(self, precision: Precision) -> Path:
        """Return the file of one precision's weights."""
        return self.folder / self.manifest.variants[precision].weights


def given_path(folder: str | Path) -> Path:
    """Return an absolute path whose last part, a link or not, is the bundle's name."""
    return Path(os.path.abspath(folder))


def load_bundle(folder: str | Path, stopping: Callable[[], bool] = lambda: False) -> Bundle:
    """Read and verify a bundle.

    Args:
        folder: the bundle, or a link to it.
        stopping: asked while large files are read: whether to give up.

    Raises:
        InvalidBundle: a file is missing, damaged or of another version.
        Unavailable: it was given up.
    """
    given = given_path(folder)
    folder = Path(os.path.realpath(folder))  # which stops at a link that leads to itself
    if not folder.is_dir():
        raise InvalidBundle(f"{folder}: no such folder; `offramp export` writes one")
    manifest, sha256 = _read_manifest(folder)
    for file, expected in manifest.files.items():
        _verify(folder, file, expected, stopping)
    if TOKENIZER not in manifest.files:
        raise InvalidBundle(f"{folder}/{MANIFEST}: files does not list {TOKENIZER}")
    calibration = Calibration()
    if CALIBRATION in manifest.files:
        content = _read(folder, CALIBRATION)
        _parse_json(content, folder / CALIBRATION)
        calibration = _validate(Calibration, content, folder / CALIBRATION)
        _check_scores(folder, manifest, calibration)
    written_s = int((folder / MANIFEST).stat().st_mtime)
    small = _load_small(folder, manifest, stopping) if manifest.small else None
    bundle = Bundle(given.name, folder, sha256, manifest, calibration, written_s, given, small)
    _ = bundle.recording, bundle.read_table()  # once, so that a wrong one is no surprise later
    return bundle


def _load_small(folder: Path, manifest: Manifest, stopping: Callable[[], bool]) -> Bundle:
    """Read and verify the small model in front."""
    assert manifest.small is not None
    bundle = load_bundle(folder / manifest.small.folder, stopping)
    if problem := unfit_in_front(bundle.manifest, manifest):
        raise InvalidBundle(f"{bundle.folder}: {problem}")
    if bundle.manifest.exit_layers != manifest.small.exits:
        raise InvalidBundle(f"{bundle.folder}: its exits are not those that {MANIFEST} says")
    return bundle


def unfit_in_front(small: Manifest, large: Manifest) -> str | None:
    """Return why a model cannot be the small one in front of another; None if it can."""
    if small.small:
        return "it has a small model in front itself"
    if small.task != large.task:
        return f"its task is {small.task}, and the large model's {large.task}"
    if set(small.labels) != set(large.labels):
        ours, theirs = listed(small.labels), listed(large.labels)
        return f"its labels are {ours}, and the large model's {theirs}"
    if missing := [each for each in large.variants if each not in small.variants]:
        wanted = ",".join(large.variants)
        return f"it has no variant {missing[0]}; export it with --precision {wanted}"
    return None


def load_bundles(folders: Iterable[str | Path]) -> list[Bundle]:
    """Read and verify the bundles of one server.

    Raises:
        InvalidBundle: one cannot be read, or two would be served under the same name.
    """
    bundles = [load_bundle(folder) for folder in folders]
    if len({bundle.name for bundle in bundles}) < len(bundles):
        raise InvalidBundle(
            "two bundles have the same folder name, which is what they are served as; rename one"
        )
    return bundles


def sha256_of(path: Path, stopping: Callable[[], bool] = lambda: False) -> str:
    """Return a file's sha256 in hexadecimal.

    Raises:
        Unavailable: `stopping` has become true before the end of the file.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            if stopping():
                raise Unavailable("the server is stopping")
            digest.update(part)
    return digest.hexdigest()


def sha256_of_manifest(folder: str | Path) -> str | None:
    """Return the sha256 of a bundle's manifest; None if there is none that can be read."""
    try:
        return hashlib.sha256(read_file(Path(folder) / MANIFEST, MOST_BYTES[MANIFEST])).hexdigest()
    except (UnfitFile, OSError):
        return None


def parse_layers(option: str, written: str, else_: str = "") -> tuple[int, ...]:
    """Return the layers that an option names, comma separated.

    Raises:
        InvalidRequest: they are no numbers; `else_` is what else the option may be.
    """
    try:
        return tuple(int(part) for part in written.split(","))
    except ValueError:
        raise InvalidRequest(f"{option} {written!r}: must be {else_}layers such as 2,4,6") from None


def check_exits(layers: Sequence[int], exits: tuple[int, ...], what: str) -> None:
    """Raise `InvalidRequest` unless the layers are exits, ascending, the last one among them."""
    if list(layers) != [layer for layer in exits if layer in layers]:
        listed = ", ".join(map(str, exits))
        raise InvalidRequest(f"{what}: must be ascending layers out of {listed}")
    if exits[-1] not in layers:
        whole = ",".join(map(str, [*layers, exits[-1]]))
        raise InvalidRequest(
            f"{what}: the last layer, {exits[-1]}, must be among them; it answers what no other "
            f"exit is sure of: use {whole}"
        )


def _read_manifest(folder: Path) -> tuple[Manifest, str]:
    """Return the manifest, and the sha256 of its file."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InvalidBundle(
            f"{folder} is no bundle: {MANIFEST} is missing; `offramp export` makes one of a model"
        )
    _locate(folder, MANIFEST)
    content = _read(folder, MANIFEST)
    document = _parse_json(content, path)
    version = document.get("format_version") if isinstance(document, dict) else None
    # In Python, 2.0 == 2 and True == 1.
    if type(version) is not int or version != FORMAT_VERSION:
        raise InvalidBundle(
            f"{path}: format_version is {version!r}, this server reads {FORMAT_VERSION}; "
            "export the model again with this version of offramp"
        )
    return _validate(Manifest, content, path), hashlib.sha256(content).hexdigest()


def _parse_json(content: bytes, path: Path) -> object:
    try:
        return from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidBundle(f"{path} is not JSON: {error}") from None


def _validate(model: type[_Model], content: bytes, path: Path) -> _Model:
    try:
        # Strict, as `true` is no 1; of JSON, as strictness of Python's types refuses lists.
        return model.model_validate_json(content, strict=True)
    except ValidationError as error:
        raise InvalidBundle(f"{path}: {explain(error)}") from None
    except InvalidRule as error:
        raise InvalidBundle(f"{path}: policy: {error}") from None


def _read(folder: Path, name: str) -> bytes:
    try:
        return read_file(folder / name, MOST_BYTES[name])
    except (UnfitFile, OSError) as error:
        raise InvalidBundle(f"{folder}/{name} {_reason(error)}") from None


def _check_scores(folder: Path, manifest: Manifest, calibration: Calibration) -> None:
    """Check that temperatures of scores fit the model: others would fail, or change labels."""
    width = len(manifest.labels) if manifest.task == "multi_label" else 1
    for place, ladder in enumerate(calibration.ladders):
        widths = {len(row) for row in ladder.score_temperatures or ()}
        if not widths <= {width}:
            raise InvalidBundle(
                f"{folder}/{CALIBRATION}: ladders.{place}.score_temperatures: must have {width} "
                f"for each exit of a {manifest.task} model, not {max(widths)}"
            )


def _verify(folder: Path, name: str, expected: str, stopping: Callable[[], bool]) -> None:
    path = _locate(folder, name)
    most = MOST_BYTES.get(name, _MOST_OF_OTHERS)
    if path.stat().st_size > most:
        raise InvalidBundle(f"{folder}/{name} has more than {most} bytes")
    if sha256_of(path, stopping) != expected:
        raise InvalidBundle(f"{folder}: {name} is damaged: its sha256 is not the manifest's")


def _locate(folder: Path, name: str) -> Path:
    """Return the place of a regular file in the bundle, links followed."""
    try:
        path = (folder / name).resolve()
        there = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long; a loop of links; a NUL
        raise InvalidBundle(f"{folder}/{MANIFEST} names {name!r}: {_reason(error)}") from None
    if not path.is_relative_to(folder):
        raise InvalidBundle(f"{folder}/{MANIFEST} names {name!r}, which lies outside the bundle")
    if not there:
        raise InvalidBundle(f"{folder}: {name} is missing")
    return path


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else str(error)) or "unreadable"
