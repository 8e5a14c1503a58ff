import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve.bundle.loader import CALIBRATION, MANIFEST, TOKENIZER, load_bundle, sha256_of
from serve.classifier.classifier import EngineOptions
from serve.errors import InvalidBundle
from serve.http.loading import assemble
from serve.policy.live import MemoryStore
from tests.serve.support.bundles import Document, rewrite_manifest
from tests.support.tiny import DEPTH, LABELS, MAX_TOKENS, POLICY

CopyBundle = Callable[..., Path]
SEGMENT, JOINED = "segments/fp32/02.onnx", "segments/fp32/joined.onnx"
WEIGHTS = "segments/int8/weights.bin"


def refusal(folder: Path | str) -> str:
    with pytest.raises(InvalidBundle) as caught:
        load_bundle(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_bundle_says_what_it_holds(bundle_folder: Path) -> None:
    bundle = load_bundle(bundle_folder)
    assert bundle.name == bundle_folder.name
    assert bundle.manifest.labels == LABELS
    assert bundle.manifest.exit_layers == tuple(range(1, DEPTH + 1))
    assert bundle.manifest.num_layers == DEPTH
    assert bundle.manifest.max_tokens == MAX_TOKENS
    assert bundle.manifest.policy == POLICY
    assert bundle.tokenizer_path.is_file()
    for precision in ("fp32", "int8"):
        paths = bundle.segment_paths(precision)
        assert [path.name for path in paths] == [f"{i:02}.onnx" for i in range(1, DEPTH + 1)]
        graphs = [*paths, bundle.joined_path(precision), bundle.weights_path(precision)]
        assert all(path.is_file() for path in graphs)


def test_bundle_is_found_by_a_relative_path(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bundle_folder)
    assert load_bundle(".").name == bundle_folder.name
    assert load_bundle(".").folder.is_absolute()


def test_bundle_may_be_reached_through_a_link(bundle_folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "alias"
    link.symlink_to(bundle_folder)
    assert load_bundle(link).manifest == load_bundle(bundle_folder).manifest


def test_files_beside_the_listed_ones_do_no_harm(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    (folder / "notes.txt").write_text("mine")
    load_bundle(folder)


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path / "nothing")
    assert message == f"{tmp_path}/nothing: no such folder; `offramp export` writes one"


def test_file_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "no such folder" in refusal(tmp_path / "file")


def test_folder_without_a_manifest_is_no_bundle(tmp_path: Path) -> None:
    assert refusal(tmp_path) == (
        f"{tmp_path} is no bundle: manifest.json is missing; `offramp export` makes one of a model"
    )


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1,", b"[" * 100_000])
def test_manifest_that_is_no_json_is_refused(bundle_copy: CopyBundle, content: bytes) -> None:
    folder = bundle_copy()
    (folder / MANIFEST).write_bytes(content)
    assert f"{folder}/{MANIFEST} is not JSON" in refusal(folder)


@pytest.mark.parametrize(("version", "shown"), [(2, "2"), (4, "4"), ("3", "'3'"), (None, "None")])
def test_other_format_version_is_refused_before_anything_else(
    bundle_copy: CopyBundle, version: Any, shown: str
) -> None:
    folder = bundle_copy()
    rewrite_manifest(folder, lambda m: m.update(format_version=version, unheard_of=1))
    message = refusal(folder)
    assert f"format_version is {shown}, this server reads 3; export the model again" in message


@pytest.mark.parametrize("document", [[], 1, "x", None])
def test_manifest_that_is_no_object_is_refused(bundle_copy: CopyBundle, document: Any) -> None:
    folder = bundle_copy()
    (folder / MANIFEST).write_text(json.dumps(document))
    assert "format_version is None" in refusal(folder)


@pytest.mark.parametrize("name", [SEGMENT, JOINED, WEIGHTS, TOKENIZER])
def test_missing_file_is_named(bundle_copy: CopyBundle, name: str) -> None:
    folder = bundle_copy()
    (folder / name).unlink()
    assert refusal(folder) == f"{folder}: {name} is missing"


@pytest.mark.parametrize("name", [SEGMENT, JOINED, WEIGHTS, TOKENIZER])
def test_file_with_one_flipped_bit_is_damaged(bundle_copy: CopyBundle, name: str) -> None:
    folder = bundle_copy()
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    assert refusal(folder) == f"{folder}: {name} is damaged: its sha256 is not the manifest's"


def test_file_cut_short_is_damaged(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    content = (folder / SEGMENT).read_bytes()
    (folder / SEGMENT).write_bytes(content[:-1])
    assert f"{SEGMENT} is damaged" in refusal(folder)


def test_folder_in_place_of_a_file_is_missing_the_file(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    (folder / SEGMENT).unlink()
    (folder / SEGMENT).mkdir()
    assert f"{SEGMENT} is missing" in refusal(folder)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "segments/../../outside"])
def test_file_outside_the_bundle_is_refused(bundle_copy: CopyBundle, name: str) -> None:
    folder = bundle_copy()
    (folder.parent / "outside").write_text("x")
    digest = sha256_of(folder.parent / "outside")
    rewrite_manifest(folder, lambda m: m["files"].update({name: digest}))
    assert f"names {name!r}, which lies outside the bundle" in refusal(folder)


def test_link_that_leads_outside_is_refused(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    moved = (folder / SEGMENT).rename(folder.parent / "outside")
    (folder / SEGMENT).symlink_to(moved)
    assert f"names {SEGMENT!r}, which lies outside the bundle" in refusal(folder)


def drop(name: str) -> Callable[[Document], Any]:
    return lambda manifest: manifest.pop(name)


def put(**fields: Any) -> Callable[[Document], Any]:
    return lambda manifest: manifest.update(fields)


def in_segment(**fields: Any) -> Callable[[Document], Any]:
    return lambda manifest: manifest["variants"]["fp32"]["segments"][1].update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(colour="red"), "colour: unknown field"),
        (drop("labels"), "labels: required field is missing"),
        (drop("files"), "files: required field is missing"),
        (put(labels=["one"]), "labels"),
        (put(labels=["one", "one", "two"]), "labels must be distinct"),
        (put(task="regression"), "task regression has one label: its value's name"),
        (put(task="token"), "task token, and no other, needs head.pooling 'tokens'"),
        (lambda m: m["head"].update(pooling="tokens"), "task token, and no other, needs"),
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
        (
            put(task="ranking"),
            "task: must be 'single_label', 'multi_label', 'regression' or 'token'",
        ),
        (put(variants={}), "variants"),
        (lambda m: m["variants"].update(bf16=m["variants"]["fp32"]), "variants.bf16"),
        (lambda m: m["variants"]["fp32"]["segments"].pop(), "variants.fp32 has segments for"),
        (
            lambda m: m["variants"]["fp32"].pop("joined"),
            "variants.fp32 needs no heads but a joined",
        ),
        (lambda m: m["variants"]["fp32"].pop("weights"), "variants.fp32.weights: required field"),
        (lambda m: m["variants"]["fp32"].update(joined="x.onnx"), "fp32: no sha256 for x.onnx"),
        (lambda m: m["variants"]["fp32"].update(weights="x.bin"), "fp32: no sha256 for x.bin"),
        (in_segment(file="segments/fp32/99.onnx"), "variants.fp32: no sha256 for"),
        (in_segment(exit_layer=3), "variants.fp32 has segments for layers [1, 3, 3, 4]"),
        (in_segment(colour="red"), "variants.fp32.segments[1].colour: unknown field"),
        (lambda m: m["files"].update({SEGMENT: "xyz"}), f"files.{SEGMENT}: must match"),
        (lambda m: m["files"].pop(TOKENIZER), "files does not list tokenizer.json"),
        (put(policy={"x": 1}), "policy.x: unknown field"),
        (put(policy={"default": "nope"}), "policy: no profile 'nope'"),
        (
            put(policy={"default": {"rule": "layer", "layer": 9}}),
            "policy: default: layer 9 has no exit",
        ),
    ],
)
def test_manifest_that_contradicts_itself_is_refused(
    bundle_copy: CopyBundle, change: Callable[[Document], Any], message: str
) -> None:
    folder = bundle_copy()
    rewrite_manifest(folder, change)
    found = refusal(folder)
    assert found.startswith(f"{folder}/{MANIFEST}: ")
    assert message in found


def test_calibration_is_read_when_it_is_listed(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    assert not load_bundle(folder).calibration.variants
    (folder / CALIBRATION).write_text("not listed, so not read")
    assert not load_bundle(folder).calibration.variants
    figures = {
        "data": {"name": "d", "rows": 1, "sha256": "0"},
        "exits": [],
    }
    rewrite_manifest(folder, calibration={"variants": {"fp32": figures}})
    assert load_bundle(folder).calibration.variants["fp32"].data.name == "d"


def test_calibration_that_cannot_be_read_is_refused(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    rewrite_manifest(folder, calibration={"variants": {"fp32": {}}})
    assert refusal(folder).startswith(f"{folder}/{CALIBRATION}: variants.fp32.data: required")


def test_tokenizer_that_cannot_be_read_is_refused_in_one_sentence(
    bundle_copy: CopyBundle,
) -> None:
    folder = bundle_copy()
    (folder / TOKENIZER).write_text("{}")
    digest = sha256_of(folder / TOKENIZER)
    rewrite_manifest(folder, lambda m: m["files"].update({TOKENIZER: digest}))
    with pytest.raises(InvalidBundle, match=re.escape(f"{folder}/{TOKENIZER}")):
        assemble([folder], EngineOptions(precision="fp32"), MemoryStore())


def test_graph_that_is_no_model_is_refused_in_one_sentence(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    (folder / JOINED).write_bytes(b"no ONNX")
    digest = sha256_of(folder / JOINED)
    rewrite_manifest(folder, lambda m: m["files"].update({JOINED: digest}))
    with pytest.raises(InvalidBundle, match=re.escape(f"{folder}/{JOINED}")):
        assemble([folder], EngineOptions(precision="fp32"), MemoryStore())


def test_two_bundles_of_one_name_cannot_be_served_together(
    bundle_folder: Path, bundle_copy: CopyBundle
) -> None:
    twin = bundle_copy(bundle_folder.name)
    with pytest.raises(InvalidBundle, match="two bundles have the same folder name"):
        assemble([bundle_folder, twin], EngineOptions(precision="fp32"), MemoryStore())


def test_a_bundle_has_the_figures_of_the_exits_that_are_used(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    figures = {
        "data": {"name": "d", "rows": 1, "sha256": "0"},
        "exits": [{"layer": layer, "accuracy": 0.5} for layer in (1, 2, 3, 4)],
    }
    rewrite_manifest(folder, calibration={"variants": {"fp32": figures}})
    found = load_bundle(folder).presenting((1, 4)).calibration.variants["fp32"].exits
    assert [exit_.layer for exit_ in found] == [1, 4]
