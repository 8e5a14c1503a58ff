from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.bench.engine import cached_bundle as module
from loadtest.bench.engine import random_model
from loadtest.bench.engine.cached_bundle import cached_bundle, key_of
from loadtest.bench.errors import BenchFailed
from tests.loadtest.bench.engine.conftest import TINY


def test_bundle_is_what_the_settings_say(cache: Path) -> None:
    manifest = cached_bundle(TINY, cache, print).manifest
    assert manifest.exit_layers == (1, 2, 3, 4)
    assert (manifest.width, manifest.max_tokens) == (TINY.width, TINY.max_tokens)
    assert tuple(manifest.variants) == ("fp32", "int8")
    assert (manifest.head.pooling, manifest.head.pooler) == ("first", False)
    assert sorted(path.name for path in cache.iterdir()) == ["tiny", "tiny.key"]


def test_bundle_is_built_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_model, "build", lambda *_: pytest.fail("built again"))
    assert cached_bundle(TINY, cache, print).name == "tiny"


def test_other_settings_and_other_code_have_other_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = key_of(TINY)
    assert key == key_of(TINY)
    assert key != key_of(replace(TINY, seed=1))
    names = {path.name for path in module._sources()}
    assert {"bundle.py", "quantize.py", "multi_exit.py"} <= names
    (tmp_path / "new.py").write_text("changed = True")
    monkeypatch.setattr(module, "_sources", lambda: iter([tmp_path / "new.py"]))
    assert key != key_of(TINY)


def test_model_that_cannot_be_made_leaves_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_model, "_BUILD", "raise SystemExit('no room for the weights')")
    with pytest.raises(BenchFailed, match="cannot be made:\nno room for the weights"):
        cached_bundle(TINY, tmp_path, print)
    assert not list(tmp_path.iterdir())
