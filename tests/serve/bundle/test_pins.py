"""All replicas serve the bundle that the server was started with, or say why they do not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve import assembly
from serve.assembly import assemble
from serve.bundle.loader import MANIFEST, load_bundle, load_bundles, sha256_of
from serve.bundle.pins import check_pins, pins_of
from serve.classifier.options import EngineOptions
from serve.errors import InvalidBundle
from serve.policy.database import Database
from tests.serve.support.bundles import rewrite_manifest

OPTIONS = EngineOptions(precision="fp32", num_threads=1)

CopyBundle = Callable[..., Path]


def relabel(folder: Path) -> None:
    """Make another bundle of one, as valid as it was."""
    rewrite_manifest(folder, lambda manifest: manifest.update(labels=["a", "b", "c"]))


def test_replica_that_finds_another_bundle_than_the_pinned_one_does_not_start(
    bundle_copy: CopyBundle,
) -> None:
    folder = bundle_copy()
    pins = pins_of([load_bundle(folder)])
    assert pins == {folder.name: sha256_of(folder / MANIFEST)}
    check_pins(load_bundles([folder]), pins)
    relabel(folder)
    with pytest.raises(InvalidBundle):
        assemble([folder], OPTIONS, Database(), pins=pins)


def test_pins_are_of_all_bundles_and_of_no_other(bundle_copy: CopyBundle) -> None:
    one, two = load_bundle(bundle_copy("one")), load_bundle(bundle_copy("two"))
    check_pins([one, two], {})
    with pytest.raises(InvalidBundle):
        check_pins([one], pins_of([one, two]))
    with pytest.raises(InvalidBundle):
        check_pins([one, two], pins_of([one]))


def test_bundle_that_is_replaced_while_it_is_loaded_is_not_served(
    bundle_copy: CopyBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, other = bundle_copy("one"), bundle_copy("other")
    relabel(other)

    def load(*args: Any) -> Any:
        made = classifier(*args)
        shutil.rmtree(folder)
        other.rename(folder)  # as an export does
        return made

    classifier = assembly.Classifier
    monkeypatch.setattr(assembly, "Classifier", load)
    with pytest.raises(InvalidBundle):
        assemble([folder], OPTIONS, Database())
