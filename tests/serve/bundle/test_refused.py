"""Bundles that are incomplete, damaged or contradict themselves are refused in one sentence."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from serve.assembly import assemble
from serve.bundle.loader import CALIBRATION, MANIFEST, TOKENIZER, sha256_of
from serve.bundle.recording import RECORDING
from serve.classifier.options import EngineOptions
from serve.errors import InvalidBundle
from serve.policy.database import Database
from tests.serve.support.bundles import Document, rewrite_manifest
from tests.serve.support.ladders import certify
from tests.serve.support.server_process import run_offramp
from tests.support.tiny import MAX_TOKENS

CopyBundle = Callable[..., Path]
Change = Callable[[Path], Any]
HASH = "0" * 64
SEGMENT, JOINED = "segments/fp32/02.onnx", "segments/fp32/joined.onnx"
WEIGHTS = "segments/int8/weights.bin"


def refusal(*folders: Path) -> str:
    with pytest.raises(InvalidBundle) as caught:
        assemble(folders, EngineOptions(precision="fp32", num_threads=1), Database())
    message = str(caught.value)
    assert "\n" not in message
    return message


def in_manifest(change: Callable[[Document], Any]) -> Change:
    return lambda folder: rewrite_manifest(folder, change)


def drop(name: str) -> Change:
    return in_manifest(lambda manifest: manifest.pop(name))


def in_variant(**fields: Any) -> Change:
    return in_manifest(lambda manifest: manifest["variants"]["fp32"].update(fields))


def in_segment(**fields: Any) -> Change:
    return in_manifest(lambda manifest: manifest["variants"]["fp32"]["segments"][1].update(fields))


def put(**fields: Any) -> Change:
    return in_manifest(lambda manifest: manifest.update(fields))


def list_file(name: str, digest: str = HASH) -> Change:
    return in_manifest(lambda manifest: manifest["files"].update({name: digest}))


def write(name: str, content: bytes) -> Change:
    """Write a file of the bundle, whose hash is then right."""

    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)
        list_file(name, sha256_of(folder / name))(folder)

    return change


def record(content: bytes) -> Change:
    return write(RECORDING, content)


def list_loop(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    list_file("loop")(folder)


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
    write(TOKENIZER, json.dumps(document).encode())(folder)


def link_outside(folder: Path) -> None:
    moved = (folder / SEGMENT).rename(folder.parent / "outside")
    (folder / SEGMENT).symlink_to(moved)


def name_outside(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder.parent / "outside").write_text("x")
        list_file(name, sha256_of(folder.parent / "outside"))(folder)

    return change


def folder_in_place(folder: Path) -> None:
    (folder / SEGMENT).unlink()
    (folder / SEGMENT).mkdir()


WRONG: list[tuple[Change, str]] = [
    (folder_in_place, "02.onnx is missing"),
    (link_outside, "which lies outside the bundle"),
    *(
        (name_outside(name), f"names {name!r}, which lies outside the bundle")
        for name in ("../outside", "/etc/hostname", "segments/../../outside")
    ),
    *(
        (lambda folder, c=content: (folder / MANIFEST).write_bytes(c), "is not JSON")
        for content in (b"", b"{", b"\xff\xfe", b"[1,", b"[" * 100_000)
    ),
    *(
        (lambda folder, d=document: (folder / MANIFEST).write_text(d), "format_version is None")
        for document in ("[]", "1", '"x"', "null")
    ),
    (put(format_version=2, unheard_of=1), "format_version is 2, this server reads 3; export"),
    (put(format_version="3"), "format_version is '3'"),
    (put(colour="red"), "colour: unknown field"),
    (drop("labels"), "labels: required field is missing"),
    (drop("files"), "files: required field is missing"),
    (put(labels=["one"]), "labels"),
    (put(labels=["one", "one", "two"]), "labels must be distinct"),
    (put(task="ranking"), "task: must be 'single_label', 'multi_label', 'regression' or 'token'"),
    (put(task="regression"), "task regression has one label: its value's name"),
    (put(task="token"), "task token, and no other, needs head.pooling 'tokens'"),
    (in_manifest(lambda m: m["head"].update(pooling="tokens")), "task token, and no other, needs"),
    (put(learned=True), "segments/fp32/01.onnx gives no uncertainty, though learned is true"),
    (put(vocab_size=0), "vocab_size: must be greater than 0"),
    (put(exits=[]), "exits: must not be empty"),
    (put(exits=[{"layer": 2}, {"layer": 1}]), "exits must be ascending and distinct"),
    (put(exits=[{"layer": 1}, {"layer": 1}]), "exits must be ascending and distinct"),
    (put(exits=[{"layer": 0}]), "exits[0].layer: must be greater than 0"),
    (put(exits=[{"layer": 1, "temperature": 0}]), "exits[0].temperature: must be greater"),
    (put(exits=[{"layer": 4}]), "variants.fp32 has segments for layers [1, 2, 3, 4], but"),
    (put(max_tokens=0), "max_tokens: must be greater than 0"),
    (put(pad_id=-1), "pad_id: must be greater than or equal to 0"),
    (put(variants={}), "variants"),
    (in_manifest(lambda m: m["variants"].update(bf16=m["variants"]["fp32"])), "variants.bf16"),
    (
        in_manifest(lambda m: m["variants"]["fp32"]["segments"].pop()),
        "variants.fp32 has segments for",
    ),
    (in_variant(joined=None), "variants.fp32 needs no heads but a joined"),
    (in_variant(weights=None), "variants.fp32.weights: must be"),
    (in_variant(joined="x.onnx"), "fp32: no sha256 for x.onnx"),
    (in_variant(weights="x.bin"), "fp32: no sha256 for x.bin"),
    (in_segment(file="segments/fp32/99.onnx"), "variants.fp32: no sha256 for"),
    (in_segment(exit_layer=3), "variants.fp32 has segments for layers [1, 3, 3, 4]"),
    (in_segment(colour="red"), "variants.fp32.segments[1].colour: unknown field"),
    (list_file(SEGMENT, "xyz"), f'files."{SEGMENT}": must match'),
    (in_manifest(lambda m: m["files"].pop(TOKENIZER)), "files does not list tokenizer.json"),
    (put(policy={"x": 1}), "policy.x: unknown field"),
    (put(policy={"default": "nope"}), "policy: no profile 'nope'"),
    (put(policy={"default": {"rule": "layer", "layer": 9}}), "policy: default: layer 9 has no"),
    (
        lambda folder: rewrite_manifest(folder, calibration={"variants": {"fp32": {}}}),
        f"{CALIBRATION}: variants.fp32.data: required",
    ),
    (write(TOKENIZER, b"{}"), TOKENIZER),
    (write(JOINED, b"no ONNX"), JOINED),
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


@pytest.mark.parametrize(
    ("change", "message"), WRONG, ids=[f"{n}-{m[:40]}" for n, (_, m) in enumerate(WRONG)]
)
def test_wrong_bundle_is_refused_in_one_sentence(
    bundle_copy: CopyBundle, change: Change, message: str
) -> None:
    folder = bundle_copy()
    change(folder)
    found = refusal(folder)
    assert message in found
    assert str(folder) in found


def test_place_without_a_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place, message in (("none", "no such folder"), ("file", "no such folder"), ("", "missing")):
        assert message in refusal(tmp_path / place)


@pytest.mark.parametrize("name", [SEGMENT, JOINED, WEIGHTS, TOKENIZER])
def test_file_that_is_missing_or_damaged_is_named(bundle_copy: CopyBundle, name: str) -> None:
    folder = bundle_copy()
    content = (folder / name).read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damaged in (bytes(flipped), content[:-1]):
        (folder / name).write_bytes(damaged)
        assert f"{name} is damaged" in refusal(folder)
    (folder / name).unlink()
    assert f"{name} is missing" in refusal(folder)


@pytest.mark.parametrize(
    "location", ["../../outside", "/etc/passwd", "link", "*/_ORT_MEM_ADDR_/*", ""]
)
def test_graph_reads_no_file_outside_the_bundle(bundle_copy: CopyBundle, location: str) -> None:
    """ONNX Runtime refuses such graphs; a version that does not would be noticed here."""
    folder = bundle_copy()
    (folder / "outside").write_bytes(bytes(1 << 20))
    (folder / JOINED).with_name("link").symlink_to("/etc/passwd")
    model = onnx.load(folder / JOINED, load_external_data=False)
    entries = [entry for tensor in model.graph.initializer for entry in tensor.external_data]
    for entry in entries:
        if entry.key == "location":
            entry.value = location
    write(JOINED, model.SerializeToString())(folder)
    assert "ONNX Runtime cannot load" in refusal(folder)


def test_two_bundles_of_one_name_cannot_be_served_together(
    bundle_folder: Path, bundle_copy: CopyBundle
) -> None:
    assert "the same folder name" in refusal(bundle_folder, bundle_copy(bundle_folder.name))


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
