"""Bundles whose hashes are right and whose contents are not: refused at loading, in a sentence."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.bundle.loader import CALIBRATION, MANIFEST, TOKENIZER, sha256_of
from serve.bundle.recording import RECORDING
from serve.classifier.options import EngineOptions
from serve.errors import InvalidBundle
from serve.http.loading import assemble
from serve.policy.live import MemoryStore
from tests.serve.support.bundles import Document, rewrite_manifest
from tests.serve.support.ladders import certify
from tests.serve.support.server_process import run_offramp
from tests.support.tiny import MAX_TOKENS

CopyBundle = Callable[..., Path]
Change = Callable[[Path], Any]
HASH = "0" * 64


def put(**fields: Any) -> Change:
    return lambda folder: rewrite_manifest(folder, lambda manifest: manifest.update(fields))


def list_file(name: str) -> Change:
    return lambda folder: rewrite_manifest(folder, lambda m: m["files"].update({name: HASH}))


def list_loop(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    list_file("loop")(folder)


def record(content: bytes) -> Change:
    def change(folder: Path) -> None:
        (folder / RECORDING).write_bytes(content)
        digest = sha256_of(folder / RECORDING)
        rewrite_manifest(folder, lambda m: m["files"].update({RECORDING: digest}))

    return change


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zipped() -> bytes:
    file = io.BytesIO()
    np.savez(file, np.ones(2))
    return file.getvalue()


def promising(shape: str) -> bytes:
    """Return a file whose header promises more than it holds."""
    return saved(np.ones((4, 2, 3), np.float32)).replace(b"(4, 2, 3)", shape.encode())


def in_text(old: str, new: str) -> Change:
    """Change the manifest's text, where Python's json would not write such a thing."""

    def change(folder: Path) -> None:
        text = (folder / MANIFEST).read_text()
        assert old in text
        (folder / MANIFEST).write_text(text.replace(old, new, 1))

    return change


def hot(value: str) -> Change:
    def change(folder: Path) -> None:
        put(exits=[{"layer": n, "temperature": 77.0} for n in range(1, 5)])(folder)
        in_text("77.0", value)(folder)

    return change


def sparse(name: str, size: int) -> Change:
    """Make a file of this size that takes no room, and list it."""

    def change(folder: Path) -> None:
        with (folder / name).open("ab") as file:
            file.truncate(size)
        list_file(name)(folder)

    return change


def sparse_manifest(folder: Path) -> None:
    with (folder / MANIFEST).open("ab") as file:
        file.truncate(1 << 40)


def manifest_elsewhere(folder: Path) -> None:
    (folder / MANIFEST).rename(folder.parent / "elsewhere.json")
    (folder / MANIFEST).symlink_to("../elsewhere.json")


def deep(folder: Path) -> None:
    layers = [1, 2, 3, 2_000_000_000]
    put(exits=[{"layer": layer} for layer in layers])(folder)

    def renumber(manifest: Document) -> None:
        for variant in manifest["variants"].values():
            for segment, layer in zip(variant["segments"], layers, strict=True):
                segment["exit_layer"] = layer

    rewrite_manifest(folder, renumber)


def scored(*row: float) -> Change:
    """Give every exit these temperatures of scores."""

    def change(folder: Path) -> None:
        certify(folder, "fp32", score_temperatures=[row] * 4)

    return change


def two_labels(folder: Path) -> None:
    put(labels=["one", "two"])(folder)
    rewrite_manifest(folder, lambda manifest: manifest["files"].pop(RECORDING))


def larger_tokenizer(folder: Path) -> None:
    document: Document = json.loads((folder / TOKENIZER).read_text())
    document["model"]["vocab"]["surplus"] = 5000
    (folder / TOKENIZER).write_text(json.dumps(document))
    digest = sha256_of(folder / TOKENIZER)
    rewrite_manifest(folder, lambda m: m["files"].update({TOKENIZER: digest}))


TAMPERED: list[tuple[Change, str]] = [
    (list_loop, "names 'loop': Symlink loop"),
    (list_file("a\0b"), r"names 'a\x00b': embedded null byte"),
    (in_text('"files": {', f'"files": {{"\\udc80": "{HASH}", '), "is not JSON: lone"),
    (list_file("x" * 300), "File name too long"),
    (hot("Infinity"), "is not JSON: expected value"),
    (hot("NaN"), "is not JSON: expected value"),
    (hot("1e999"), "exits[0].temperature: must be a finite number"),
    (put(format_version=True), "format_version is True, this server reads 3"),
    (put(format_version=3.0), "format_version is 3.0, this server reads 3"),
    (put(width=True), "width: must be a valid integer"),
    (put(token_types=1), "token_types: must be a valid boolean"),
    (put(width=10**30), "width: must be less than 2147483648"),
    (deep, "exits[3].layer: must be less than or equal to 1000"),
    (put(labels=[f"{n}" for n in range(70_000)]), "labels: must have at most 65536"),
    (put(files={f"{n}": HASH for n in range(10_001)}), "files: must have at most 10000"),
    (sparse_manifest, "has 1099511627776 bytes; at most 4194304 are read"),
    (manifest_elsewhere, "which lies outside the bundle"),
    (sparse(TOKENIZER, 1 << 40), "tokenizer.json has more than 67108864 bytes"),
    (sparse(CALIBRATION, 1 << 40), "calibration.json has more than 8388608 bytes"),
    (sparse(RECORDING, 1 << 40), "recording.npy has more than 1073741824 bytes"),
    (scored(0.5, 2.0, 1.0), "score_temperatures: must have 1 for each exit of a single_label"),
    (scored(0.5, 2.0), "score_temperatures: must have 1 for each exit of a single_label"),
    (scored(), "score_temperatures: must have 1 for each exit of a single_label"),
    (scored(1e-45), "score_temperatures[0][0]: must be greater than or equal to 0.01"),
    (scored(1e45), "score_temperatures[0][0]: must be less than or equal to 100"),
    (put(labels=["one", "two"]), "recording.npy has shape (4, 40, 3); expected (4 exits, rows, 2"),
    (two_labels, "exit 1 gives logits of shape (1, 3); by manifest.json it is"),
    (put(width=33), "exit 1 gives hidden states of shape (1, 64, 32); by manifest.json it is"),
    (put(max_tokens=MAX_TOKENS + 1), "fail at exit 1 on a text of 65 tokens"),
    (put(max_tokens=2**31 - 1), "fail at exit 1 on a text of 2048 tokens"),
    (put(vocab_size=5000), "fail at exit 1 on a text of 64 tokens with ids up to 4999"),
    (put(type_vocab_size=3), "types up to 2"),
    (put(vocab_size=20), "the manifest's vocab_size is 20, and ids must be below it"),
    (put(pad_id=201), "have ids up to 201; the manifest's vocab_size is"),
    (larger_tokenizer, "have ids up to 5000; the manifest's vocab_size is"),
    (record(b"no array"), "recording.npy is no array"),
    (record(b"PK\3\4 no archive"), "recording.npy is no array"),
    (record(zipped()), "recording.npy is no array"),
    (record(saved(np.ones((4, 2, 3), np.int64))), "is no array of floating-point numbers"),
    (record(saved(np.array([{}]))), "recording.npy is no array"),
    (record(promising("(4, 9999999999, 3)")), "recording.npy is no array"),
    (record(promising("(4, 2, ((((")), "recording.npy is no array"),
    (record(saved(np.ones((4, 2, 2)))), "has shape (4, 2, 2); expected (4 exits, rows, 3 labels)"),
    (record(saved(np.ones((4, 0, 3)))), "has shape (4, 0, 3); expected (4 exits, rows, 3 labels)"),
]


@pytest.mark.parametrize(("change", "message"), TAMPERED, ids=[m for _, m in TAMPERED])
def test_tampered_bundle_is_refused_in_one_sentence(
    bundle_copy: CopyBundle, change: Change, message: str
) -> None:
    folder = bundle_copy()
    change(folder)
    with pytest.raises(InvalidBundle) as caught:
        assemble([folder], EngineOptions(precision="fp32", num_threads=1), MemoryStore())
    found = str(caught.value)
    assert message in found
    assert str(folder) in found
    assert "\n" not in found


def test_longer_text_than_the_positions_ends_the_command_in_one_line(
    bundle_copy: CopyBundle,
) -> None:
    folder = bundle_copy()
    put(max_tokens=2 * MAX_TOKENS)(folder)
    status, _, error = run_offramp(
        "serve", folder, "--standalone", "--port", "0", "--precision", "int8"
    )
    assert status == 2
    assert error.startswith(f"offramp: {folder}: int8: the graphs fail at exit 1")
    assert error.count("\n") == 1
