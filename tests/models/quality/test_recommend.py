"""`offramp recommend`: what a target becomes, in words."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.errors import TrainingFailed
from serve.bundle.loader import CALIBRATION, Bundle, load_bundle
from serve.bundle.manifest import Precision
from serve.errors import TargetOutOfReach
from serve.policy.served_ladder import ServedLadder
from serve.rules import CompiledRule
from serve.rules.traits import Task
from tests.models.conftest import offramp
from tests.models.quality.conftest import MakeBundle, MakeData, run
from tests.serve.support.bundles import Document, rewrite_manifest
from tests.serve.support.ladders import ladder, without_labels

# Of the made-up ladder's rungs, for exits 1, 2 and 4: 4, 3.6, 2.6, 2 and 1.4 layers.
SHARES = (0, 0, 1), (0, 0.2, 0.8), (0.2, 0.4, 0.4), (0.4, 0.4, 0.2), (0.8, 0.1, 0.1)

HARDLY = (
    "would hardly help: what they could certify saves less than 0.2 layers, takes more than 10 "
    "times as many texts, or needs no more texts than these, which just missed it"
)


@pytest.fixture
def certified(make_bundle: MakeBundle) -> Path:
    folder = make_bundle()
    manifest = load_bundle(folder).manifest
    weights = manifest.files[manifest.variants["fp32"].weights]
    made_up = ladder("fp32", weights, exits=(1, 2, 4), temperatures=(1.0,) * 3)
    for rung, shares in zip(made_up["rungs"], SHARES, strict=True):
        rung["exit_shares"] = shares
    rewrite_manifest(folder, calibration={"ladders": [made_up]})
    return folder


def rewrite_ladder(folder: Path, change: Callable[[Document], Any]) -> None:
    calibration = json.loads((folder / CALIBRATION).read_bytes())
    change(calibration["ladders"][0])
    rewrite_manifest(folder, calibration=calibration)


def said(bundle: Path, *options: str) -> dict[str, str]:
    """Return the sentences by their headings."""
    result = offramp("recommend", bundle, *options)
    assert result.exit_code == 0, result.output
    pairs = (line.split("  ", 1) for line in result.output.splitlines())
    return {heading: sentence.strip() for heading, sentence in pairs}


def refusal(bundle: Path, *options: str) -> BaseException:
    result = offramp("recommend", bundle, *options)
    assert result.exception is not None
    return result.exception


def test_a_bound_becomes_a_rule_with_what_it_saves_may_cost_and_how_sure_that_is(
    certified: Path,
) -> None:
    found = said(certified, "--max-disagreement", "1%")
    assert found["rule"] == "entropy < 0.2"
    assert found["saves"].startswith("2.60 of 4 layers run in the mean; ")
    assert "for a lone text of 8 tokens on this machine" in found["saves"]
    assert found["may cost"] == "other answer than at full depth: at most 1 %"
    assert found["how sure"] == (
        "the bound fails to hold with probability 0.05 at most; 4000 texts certify it, each "
        "as often as it came, of which 0.60 % got another answer"
    )
    assert found["more texts"] == ("would not bring a faster rule: the next one loses 1 % or more")
    assert found["ask for it"] == '"exit": {"target": {"max_disagreement":0.01}}'


@pytest.mark.parametrize(
    ("num_certifying", "bound", "sentence"),
    [
        (
            1000,
            "0.025",
            "about 2900 that certify, instead of 1000, would certify 2.00 layers (entropy < 0.5). "
            "Of the texts that are given, two thirds certify of `calibrate` (all, beside "
            "--tuning), and three in ten of `adopt`",
        ),
        # These many texts would certify the next rule if they had lost a little less by it.
        (4000, "0.025", HARDLY),
        (2800, "0.025", HARDLY),
        # The next rule takes 100 times as many texts.
        (1999, "0.0205", HARDLY),
    ],
)
def test_more_texts_are_asked_for_where_they_are_worth_it(
    certified: Path, num_certifying: int, bound: str, sentence: str
) -> None:
    rewrite_ladder(certified, lambda ladder: ladder.update(num_certifying=num_certifying))
    assert said(certified, "--max-disagreement", bound)["more texts"] == sentence


@pytest.mark.parametrize("task", ["single_label", "token"])
def test_texts_compare_the_rule_with_the_whole_model_under_load(
    make_bundle: MakeBundle, make_data: MakeData, monkeypatch: pytest.MonkeyPatch, task: Task
) -> None:
    monkeypatch.setattr("models.quality.load.TURN_S", 0.02)
    folder, data = make_bundle(task), make_data(task, num_texts=20)
    found = said(folder, "--max-layers", "2", "--texts", str(data))
    assert re.match(r"\d+ answers/s instead of \d+, [\d.]+ times as many", found["under load"])
    assert "with 20 of your texts" in found["under load"]
    assert "under load" not in said(folder, "--max-layers", "4", "--texts", str(data))


def test_a_loss_of_the_metric_needs_labels(certified: Path) -> None:
    rewrite_ladder(certified, lambda ladder: ladder.update(without_labels(ladder)))
    found = said(certified, "--max-loss", "2%")
    assert found["rule"] == "never"
    assert "the rules here were certified by texts without labels" in found["note"]
    assert "more texts" not in found


def test_a_loss_of_the_metric_has_its_own_certificate(certified: Path) -> None:
    found = said(certified, "--max-loss", "0.5%")
    assert found["may cost"] == "right at full depth, wrong early (accuracy): at most 0.5 %"
    assert "of which 0.20 % counted" in found["how sure"]


def test_a_wish_for_speed_says_that_nothing_is_certified(certified: Path) -> None:
    found = said(certified, "--max-layers", "1.5")
    assert found["rule"] == "entropy < 0.9"
    assert found["may cost"] == "unknown: 8.00 % of the certifying texts differed"
    assert found["how sure"] == "not certified"
    problem = refusal(certified, "--max-layers", "1.5", "--certified")
    assert isinstance(problem, TargetOutOfReach)
    assert "the nearest is" in str(problem)


def test_the_policys_limits_apply_as_in_the_server(certified: Path) -> None:
    def at_least_two_layers(manifest: Document) -> None:
        manifest["policy"] = {"limits": {"min_layer": 2}}

    rewrite_manifest(certified, at_least_two_layers)
    # The certified rules may let texts leave at layer 1: within the limits they are other rules.
    assert said(certified, "--max-disagreement", "5%")["rule"] == "never from layer 2"


def test_without_certificates_it_says_which_command_makes_them(make_bundle: MakeBundle) -> None:
    folder = make_bundle()
    found = said(folder, "--max-disagreement", "1%")
    assert found["rule"] == "never"
    assert f"run `offramp calibrate {folder} --data FILE`" in found["note"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "a target needs max_disagreement, max_loss, max_missed, max_false_alarms, speedup, "),
        (("--max-disagreement", "few"), "'few': must be a share such as 1% or 0.01"),
        (("--max-loss", "120%"), "max_loss: must be a share below 0.5, not 1.2: 1 % is 0.01"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(
    certified: Path, options: tuple[str, ...], message: str
) -> None:
    problem = refusal(certified, *options)
    assert isinstance(problem, TrainingFailed)
    assert message in str(problem)


def test_exits_that_take_longer_to_ask_than_they_save_are_named(
    certified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [1.0, 2.0, 4.0]

    def timed(bundle: Bundle, precision: Precision, *_: object) -> ServedLadder:
        def times(rule: CompiledRule) -> list[float]:
            return asked if rule.first_heard == 0 else [1.0, 2.0, 4.0]

        ladder = bundle.ladder(precision)
        return ServedLadder(bundle.manifest.traits, (1.0,) * 3, times, ladder)

    monkeypatch.setattr("models.quality.recommend.serve_ladder", timed)
    assert "note" not in said(certified, "--max-disagreement", "1%")
    asked[:] = [4.0, 8.0, 12.0]
    found = said(certified, "--max-disagreement", "1%")
    assert "ask fewer, by `offramp export --exits`" in found["note"]
    assert "note" not in said(certified, "--max-disagreement", "0")


def test_a_reference_is_named_with_what_full_depth_and_the_rule_differ_from_it(
    make_bundle: MakeBundle, make_data: MakeData, tmp_path: Path
) -> None:
    folder = make_bundle()
    (ladder,), _ = run(folder, make_data(num_texts=600), reference=folder)
    found = said(folder, "--max-disagreement", "5%", "--reference", str(folder))
    assert found["may cost"].startswith(f"other answer than {folder.name}'s: at most ")
    assert "texts certify it" in found["how sure"]
    assert found[f"from {folder.name}"].startswith(
        "full depth differs for 0.00 % of the certifying"
    )
    assert found["ask for it"] == (
        '"exit": {"target": {"max_disagreement":0.05,"from":"reference"}}'
    )
    other = tmp_path / "answers.jsonl"
    other.write_text('{"text": "the", "label": "neutral"}')
    message = str(refusal(folder, "--max-disagreement", "5%", "--reference", str(other)))
    assert f"is not certified from {other.name}, but from {ladder.reference.name}" in message
    assert f"calibrate {folder} --data FILE --reference {other}" in message
