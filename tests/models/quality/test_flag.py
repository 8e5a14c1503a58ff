"""Decisions: each side certified by itself, and what that says of a rule of both."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import TrainingFailed, UnusableData
from models.quality import flag as flags
from models.quality.flag import FlaggedTexts, Side, certify_flag
from models.quality.recorded import Recorded
from serve.errors import InvalidRule
from serve.rules import DecisionRule
from serve.rules.traits import Task, Traits
from tests.models.conftest import offramp
from tests.models.quality.conftest import MakeBundle, MakeData, command, ladder_of, run
from tests.serve.support.task_bundles import LABELS

EXITS, NUM_TOKENS = (1, 2, 3, 4), 5
FLAGS: dict[Task, dict[str, float]] = {
    "single_label": {LABELS["single_label"][1]: 0.8},
    "multi_label": {LABELS["multi_label"][0]: 0.8, LABELS["multi_label"][2]: 0.3},
    "token": {"PER": 0.7, "LOC": 0.6},
}


def texts(task: Task, num_rows: int, seed: int = 0) -> Recorded:
    """Return random logits that come nearer to full depth's with every exit."""
    draw = np.random.default_rng(seed)
    inner = (NUM_TOKENS,) if task == "token" else ()
    full = draw.normal(0, 3, (num_rows, *inner, len(LABELS[task])))
    noise = draw.normal(0, 2.5, (len(EXITS), *full.shape))
    shares = np.array([1, 0.6, 0.3, 0]).reshape(-1, *(1,) * full.ndim)
    logits = (full * (1 - shares / 2) + noise * shares).astype(np.float32)
    logits[draw.random(logits.shape[:2]) < 0.02] = np.nan
    logits[-1] = full
    counted = draw.random((num_rows, NUM_TOKENS)) < 0.8 if inner else None
    per_exit = 1 if task != "multi_label" else len(LABELS[task])
    temperatures = draw.uniform(0.4, 1.5, (len(EXITS) - 1, per_exit)).tolist()
    shown = tuple(map(tuple, [*temperatures, [1.0] * per_exit]))
    traits = Traits(EXITS, LABELS[task], task, score_temperatures=shown)
    lengths = np.full(num_rows, NUM_TOKENS)
    return Recorded(traits, (1.0,) * len(EXITS), logits, counted, num_tokens=lengths)


@pytest.mark.parametrize("task", FLAGS)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), doubts=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_a_rule_of_both_sides_loses_nothing_that_neither_side_loses(
    task: Task, seed: int, doubts: tuple[int, int]
) -> None:
    found = FlaggedTexts.of(texts(task, 60, seed), FLAGS[task])
    full, last = found.flagged[-1], len(EXITS) - 1
    sides: dict[str, Any] = {}
    left, lost = {}, {}
    for name, loss, at in (("leave_below", "missed", doubts[0]), ("leave_above", "", doubts[1])):
        side: Side = found.side("missed" if loss else "false_alarms", None, stride=66)
        sides[name] = side.bounds[at]
        left[name] = found.recorded.taken(DecisionRule(**{name: sides[name]})).exits
        own = found.at(left[name])
        lost[name] = (full & ~own, ~full & own)
        early = left[name] < last
        # What leaves above is flagged as answers show it, what leaves below is not.
        assert (own[early] == (name == "leave_above")).all()
    assert not lost["leave_above"][0].any()
    assert not lost["leave_below"][1].any()
    both = found.recorded.taken(DecisionRule(**sides)).exits
    assert (both == np.minimum(left["leave_above"], left["leave_below"])).all()
    own = found.at(both)
    assert not ((full & ~own) & ~lost["leave_below"][0]).any()
    assert not ((~full & own) & ~lost["leave_above"][1]).any()


def test_certified_decisions_are_wrong_no_more_often_than_they_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flags, "NUM_STEPS", 40)
    everything, tuning = texts("single_label", 600, 1), texts("single_label", 100, 2)
    tuning = replace(tuning, traits=everything.traits)
    flag, draw, num_calibrations = FLAGS["single_label"], np.random.default_rng(0), 40
    population = FlaggedTexts.of(everything, flag)
    full, broken = population.flagged[-1], 0
    for _ in range(num_calibrations):
        sample = everything.of(draw.integers(0, 600, 600))
        decided = certify_flag(tuning, sample, flag, 0.1)
        found = 0.0
        for rung in decided.rungs:
            own = population.at(everything.taken(rung.rule).exits)
            for certificate in rung.certificates:
                lost = (~own[full] if certificate.loss == "missed" else own[~full]).mean()
                found = max(found, float(lost) / certificate.epsilon)
        broken += found > 1
    # Each of the two sides may be wrong in a tenth, for any of its bounds in somewhat more.
    assert broken <= 0.4 * num_calibrations


@pytest.mark.parametrize("task", FLAGS)
def test_each_certificate_counts_the_texts_that_its_side_can_lose(task: Task) -> None:
    sample = texts(task, 1500, 3)
    tuning = replace(texts(task, 200, 4), traits=sample.traits)
    found = certify_flag(tuning, sample, FLAGS[task], 0.05)
    population = FlaggedTexts.of(sample, FLAGS[task])
    full = population.flagged[-1]
    assert found.num_flagged == full.sum() > 100
    assert found.rungs[0].full_depth
    seen = set()
    for rung in found.rungs[1:]:
        assert isinstance(rung.rule, DecisionRule)
        exits = sample.taken(rung.rule).exits
        own = population.at(exits)
        assert rung.exit_shares == pytest.approx(np.bincount(exits, minlength=4) / len(exits))
        seen.add((rung.rule.leave_below is None, rung.rule.leave_above is None))
        named = {"missed": rung.rule.leave_below, "false_alarms": rung.rule.leave_above}
        assert {c.loss for c in rung.certificates} == {x for x, side in named.items() if side}
        for certificate in rung.certificates:
            lost = ~own[full] if certificate.loss == "missed" else own[~full]
            assert certificate.n == len(lost)
            assert certificate.observed == pytest.approx(lost.mean())
            assert certificate.observed < certificate.epsilon
    assert seen == {(True, False), (False, True), (False, False)}


def test_without_a_flagged_text_nothing_may_leave_below() -> None:
    sample = texts("single_label", 300)
    found = certify_flag(sample, sample, {LABELS["single_label"][0]: 1.0}, 0.05)
    assert found.num_flagged == 0
    assert all(rung.certificate("missed") is None for rung in found.rungs)
    below = [r.rule.leave_below for r in found.rungs if isinstance(r.rule, DecisionRule)]
    assert not any(below)


@pytest.mark.parametrize("task", FLAGS)
def test_a_bundle_gets_what_is_certified_of_each_flag(
    make_bundle: MakeBundle, make_data: MakeData, task: Task
) -> None:
    folder, data, flag = make_bundle(task), make_data(task), FLAGS[task]
    (ladder,), _ = run(folder, data, flag=flag)
    decided = ladder.decided(flag)
    assert decided
    assert ladder_of(folder) == ladder
    other = {next(iter(flag)): 0.5}
    run(folder, data, flag=other)
    both = ladder_of(folder)
    assert [each.flag for each in both.decisions] == [flag, other]
    run(folder, data)
    assert ladder_of(folder).decisions == both.decisions
    # By other texts, what was certified before says nothing of the ladder as it is now.
    run(folder, make_data(task, 380, "other"), flag=other)
    assert [each.flag for each in ladder_of(folder).decisions] == [other]


def test_a_flag_that_cannot_be_certified_is_refused_before_texts_run(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    label = LABELS["single_label"][0]
    with pytest.raises(InvalidRule, match="flag: no label 'angry'; the model has"):
        run(make_bundle(), make_data(), flag={"angry": 0.8})
    with pytest.raises(InvalidRule, match="flag: this model gives a value"):
        run(make_bundle("regression"), make_data("regression"), flag={"stars": 0.8})
    with pytest.raises(TrainingFailed, match="flag: it flags every text"):
        run(make_bundle(), make_data(), flag={label: 0.0})


def test_the_commands_show_what_each_side_costs_and_how_many_texts_are_lacking(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, label, bound = make_bundle(), LABELS["single_label"][0], 0.8
    flag = ["--flag", f"{label}={bound}"]
    result = offramp("recommend", folder, *flag)
    assert isinstance(result.exception, UnusableData)
    assert f"offramp calibrate {folder} --data FILE --flag '{label}=0.8'" in str(result.exception)
    result = command(folder, make_data(), *flag)
    assert result.exit_code == 0, result.output
    decided = ladder_of(folder).decided({label: bound})
    assert decided
    n = decided.num_flagged
    assert f"flag {label} from 0.8 on: mean layers by how many of the {n} texts" in result.stdout
    assert (
        f"missed early, at most 0.1 %: too few texts that full depth flags: {n} certify, "
        f"{2995 - n} more are needed if none is lost; about "
    ) in result.stdout
    assert "not early" in offramp("recommend", folder, *flag).stdout
    asked = offramp("recommend", folder, *flag, "--max-missed", "0.1%", "--max-false-alarms", "10%")
    assert asked.exit_code == 0, asked.output
    assert "flagged at full depth, missed early  nothing" in asked.stdout
    assert "flagged early, not at full depth" in asked.stdout
    assert f"{2995 - n} more are needed if none is lost" in asked.stdout
    assert f'"flag": {{"{label}": 0.8}}' in asked.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--flag", "angry"), "--flag 'angry': must be a label and a threshold from 0 to 1"),
        (("--flag", "a=2"), "such as injection=0.8"),
        (("--flag", "=0.5"), "such as injection=0.8"),
        (("--flag", "a=0.5", "--flag", "a=0.6"), "a has a threshold already"),
        (("--max-missed", "1%"), "--flag goes with --max-missed and --max-false-alarms"),
        (("--flag", "a=0.5", "--max-disagreement", "1%"), "--flag goes with --max-missed"),
        (("--max-missed", "1%", "--max-loss", "1%"), "no rule is certified for both"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    make_bundle: MakeBundle, options: tuple[str, ...], said: str
) -> None:
    result = offramp("recommend", make_bundle(), *options)
    assert isinstance(result.exception, TrainingFailed)
    assert said in str(result.exception)
