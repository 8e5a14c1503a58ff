"""Sections written whole, of tiny models."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models.experiments.places import Places
from models.experiments.section import Context
from models.experiments.sections import deebert
from models.experiments.sections.models import SST2_MINILM, SST2_MPNET, not_there
from models.experiments.sections.papers import PAPERS
from models.multi_exit import MultiExitModel
from tests.models.conftest import tiny_tokenizer


@pytest.fixture
def context(
    places: Places, make_model: Callable[..., MultiExitModel], monkeypatch: pytest.MonkeyPatch
) -> Context:
    """SST-2's two models are there, with bundles that nothing reads; MRPC's and RTE's are not."""
    for seed, model in enumerate((SST2_MINILM, SST2_MPNET)):
        folder = places.zoo / model.name
        make_model(seed=seed).save(folder)
        tiny_tokenizer().save(str(folder / "tokenizer.json"))
        bundle = places.bundles / model.name
        bundle.mkdir(parents=True)
        (bundle / "manifest.json").write_text("{}")

    def seconds(_bundle: Path, rules: list[object], texts: list[object]) -> object:
        return np.ones((len(rules), len(texts)))

    monkeypatch.setattr(deebert, "seconds_in_turns", seconds)
    return Context(places)


@pytest.mark.parametrize("name", [name for name, section in PAPERS.items() if not section.runs])
def test_section_tells_of_the_models_that_are_there_and_of_those_that_are_not(
    name: str, context: Context
) -> None:
    found = PAPERS[name].write(context)
    assert "sst2-minilm" in found
    assert "sst2-mpnet" in found
    assert "`make zoo MODEL=mrpc-mpnet`" in found
    assert "nan" not in found.split()


def test_model_without_a_bundle_is_named_with_the_command_that_exports_it(context: Context) -> None:
    (context.bundle("sst2-mpnet") / "manifest.json").unlink()
    assert "`make bundle MODEL=sst2-mpnet`" in not_there(context, [SST2_MPNET], exported=True)
    assert not not_there(context, [SST2_MPNET])


def test_runs_of_all_sections_have_folders_of_their_own() -> None:
    runs = {run for section in PAPERS.values() for run in section.runs}
    assert len({str(run) for run in runs}) == len(runs)
