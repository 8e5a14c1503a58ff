"""`offramp calibrate`: ladders, what is stored with them, and what is left as it was."""

import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from models.errors import TrainingFailed, UnusableData
from models.profiles import FROM_REFERENCE, PROFILES
from models.quality import calibrate as calibrating
from models.quality import stored
from serve.bundle.calibration import Calibration
from serve.bundle.loader import CALIBRATION, MANIFEST, Bundle, load_bundle
from serve.bundle.recording import CERTIFYING
from serve.classifier.score_map import ScoreMap
from serve.dry_run.answers import AnswerReader
from serve.dry_run.exit_trial import Totals, Trial
from serve.dry_run.texts import Texts
from serve.errors import DeviceUnavailable, InvalidBundle, InvalidRequest
from serve.policy.document import Policy
from serve.policy.ladder import Ladder
from serve.policy.profile import Settings
from serve.policy.resolution import ChosenExit
from serve.policy.served_ladder import ServedLadder
from serve.rules import ExitRule
from serve.rules.traits import Task
from serve.runtime.placement import place
from tests.models.conftest import offramp
from tests.models.quality.conftest import (
    MakeBundle,
    MakeData,
    certified,
    command,
    contents,
    ladder_of,
    listed,
    recording_of,
    run,
    texts_in,
    write_texts,
)
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.live_server import serving_bundles
from tests.serve.support.task_bundles import LABELS


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("task", LABELS)
def test_models_of_every_task_get_a_ladder_that_the_bundle_loads(
    make_bundle: MakeBundle, make_data: MakeData, task: Task, labelled: bool
) -> None:
    folder = make_bundle(task)
    (ladder,), _ = run(folder, make_data(task), labelled=labelled)
    bundle = load_bundle(folder)
    assert bundle.ladder("fp32") == ladder
    assert (ladder.metric is not None) == labelled
    assert (ladder.tolerance is not None) == (task == "regression")
    assert ladder.num_tuning + ladder.num_certifying == ladder.data[0].rows
    assert 3 < ladder.mean_tokens < 13
    seldom = [rung for rung in ladder.rungs if rung.certificate("disagreement")]
    assert seldom, "some rule is certified to differ seldom"
    assert ladder.mean_layers(seldom[-1]) < 4
    losses = {c.loss for rung in ladder.rungs for c in rung.certificates}
    assert losses <= {"disagreement", "metric", "score"}
    assert labelled or "metric" not in losses
    fitted = ladder.score_temperatures
    assert (fitted is None) == (task == "regression")
    assert fitted is None or {len(row) for row in fitted} == {
        len(LABELS[task]) if task == "multi_label" else 1
    }


def test_the_bundle_gets_the_profiles_it_lacks_and_a_card(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder = with_card(make_bundle())
    _, said = run(folder, make_data())
    policy = load_bundle(folder).manifest.policy
    assert (policy.default, policy.profiles) == ("balanced", PROFILES)
    assert "profiles added to the policy: exact, balanced, fast" in said
    assert "the policy's default, which never left early, is now balanced" in said
    card = (folder / "README.md").read_text()
    assert card.startswith("# mine\n")
    assert "(delta 0.05, n " in card
    assert '`{"target":{"max_disagreement":0.01}}`' in card
    assert [bold for bold in re.findall(r"\*\*(.*?)\*\*", card) if bold != "bold"] == [
        fastest_within(ladder_of(folder), 0.01)
    ]
    own = Policy.model_validate({"default": OWN})
    stored.store_policy(load_bundle(folder), own)
    assert "**" not in (folder / "README.md").read_text().replace("**bold**", "")
    assert load_bundle(folder).manifest.policy == own
    run(folder, make_data(), delta=0.1)
    again = (folder / "README.md").read_text()
    assert "(delta 0.1, n " in again
    assert "(delta 0.05, n " not in again


@pytest.mark.filterwarnings("ignore:.*several answers")  # of labels drawn at random
@pytest.mark.parametrize(
    ("num_texts", "agrees", "turned"),
    [(1000, True, ("balanced", "fast")), (400, True, ("fast",)), (400, False, ())],
)
def test_profiles_promise_from_the_reference_what_is_certified_and_are_served(
    make_bundle: MakeBundle,
    make_data: MakeData,
    num_texts: int,
    agrees: bool,
    turned: Sequence[str],
) -> None:
    folder, data = make_bundle(), make_data(num_texts=num_texts)  # with labels drawn at random
    same = shutil.copytree(folder, folder.with_name("reference"))
    for reference in (same if agrees else data, None):
        _, said = run(folder, data, reference=reference)
        policy = load_bundle(folder).manifest.policy
        own = {name: FROM_REFERENCE[name] for name in turned if reference}
        assert (policy.default, policy.profiles) == ("balanced", PROFILES | own)
        assert ("certify with more texts" in said) == (reference is not None and len(own) < 2)
        with serving_bundles(folder) as server:
            assert server.answer("w1")


def fastest_within(ladder: Ladder, most: float) -> str:
    """Return the fastest rule that is certified for a bound on other answers."""
    rungs = [
        rung
        for rung in ladder.rungs
        if rung.full_depth or ((c := rung.certificate("disagreement")) and c.epsilon <= most)
    ]
    return min(rungs, key=ladder.mean_layers).rule.text()


def with_card(folder: Path, written: bytes = b"# mine\n") -> Path:
    (folder / "README.md").write_bytes(written)
    return listed(folder, "README.md")


def test_a_card_in_another_encoding_stays_as_it_is_written(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    written = b"# caf\xe9\n"
    folder = with_card(make_bundle(), written)
    run(folder, make_data())
    assert (folder / "README.md").read_bytes().startswith(written)
    assert ladder_of(folder)


OWN = {"rule": "entropy", "threshold": 0.3}


@pytest.mark.parametrize("default", [{"rule": "never"}, OWN])
def test_a_policy_that_an_operator_has_written_stays(
    make_bundle: MakeBundle, make_data: MakeData, default: dict[str, Any]
) -> None:
    folder = make_bundle()
    written = {
        "default": default,
        "profiles": {"mine": OWN, "balanced": OWN},
        "detectors": {"own": "mine"},
        "audit": {"share": 0.5},
    }
    rewrite_manifest(folder, lambda manifest: manifest.update(policy=written))
    before = load_bundle(folder).manifest.policy
    _, said = run(folder, make_data(num_texts=60))
    policy = load_bundle(folder).manifest.policy
    added = {name: PROFILES[name] for name in ("exact", "fast")}
    assert policy == before.model_copy(update={"profiles": before.profiles | added})
    assert "profile balanced stays a rule of its own, which no certificate backs" in said


def test_what_a_checkpoint_states_is_no_policy(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder = make_bundle()
    imported = {"policy": {"profiles": {"original": OWN}}, "trained_for": {"rule": OWN}}
    rewrite_manifest(folder, lambda manifest: manifest.update(imported))
    run(folder, make_data())
    policy = load_bundle(folder).manifest.policy
    assert policy.default == "balanced"
    assert set(policy.profiles) == {"original", *PROFILES}


def test_a_ladder_takes_the_place_of_its_own_variants_only(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data()
    run(folder, data)
    run(folder, data, exits=(1, 4))
    run(folder, data, delta=0.1)
    bundle = load_bundle(folder)
    assert [ladder.exits for ladder in bundle.calibration.ladders] == [(1, 2, 4), (1, 4)]
    whole, fewer = bundle.ladder("fp32"), bundle.presenting((1, 4)).ladder("fp32")
    assert whole
    assert fewer
    assert {c.delta for rung in whole.rungs for c in rung.certificates} == {0.1}
    assert {c.delta for rung in fewer.rungs for c in rung.certificates} == {0.05}
    assert len(fewer.rungs[0].exit_shares) == 2
    assert bundle.presenting((2, 4)).ladder("fp32") is None


def test_promises_that_a_calibration_takes_away_are_named(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data()
    label = LABELS["single_label"][0]
    (labelled,), said = run(folder, data, flag={label: 0.5})
    assert "is gone" not in said
    _, said = run(folder, data, labelled=False, flag={label: 0.5})
    assert "of max_loss is gone" in said
    assert "--flag" not in said
    _, said = run(folder, make_data(name="others"), labelled=False)
    flag = f"--flag {{'{label}': 0.5}}"
    assert f"fp32: what {labelled.num_certifying} texts had certified of {flag} is gone" in said


def test_a_ladder_does_not_hold_for_other_weights(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder = make_bundle()
    run(folder, make_data())
    weights = folder / load_bundle(folder).manifest.variants["fp32"].weights
    weights.write_bytes(weights.read_bytes() + b"\0")
    listed(folder, "segments/fp32/weights.bin")
    bundle = load_bundle(folder)
    assert bundle.calibration.ladders
    assert bundle.ladder("fp32") is None


def test_each_precision_that_runs_here_is_certified_and_the_one_that_is_served_is_shown(
    bundle_folder: Path, tmp_path: Path, make_data: MakeData
) -> None:
    folder = shutil.copytree(bundle_folder, tmp_path / "both")
    shown = command(folder, make_data(num_texts=60)).stdout.splitlines()
    served = place(load_bundle(folder), "auto", "auto").precision
    assert [line.partition(",")[0] for line in shown if "chose the rules" in line] == [served]
    bundle = load_bundle(folder)
    found = bundle.calibration.ladders
    assert [ladder.precision for ladder in found] == ["fp32", "int8"]
    assert tuple(bundle.ladder(ladder.precision) for ladder in found) == found
    assert found[0].weights != found[1].weights


def test_half_precision_is_certified_on_a_cpu_with_a_note(
    half_bundle: Bundle, tmp_path: Path, make_data: MakeData
) -> None:
    folder, data = shutil.copytree(half_bundle.folder, tmp_path / "half"), make_data(num_texts=60)
    found, said = run(folder, data, device="cpu")
    assert [ladder.precision for ladder in found] == ["fp32", "fp16"]
    assert "fp16 is certified as a CPU computes it" in said


def test_separate_tuning_texts_let_all_others_certify(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    tuning, data = make_data(name="tuning", num_texts=100), make_data()
    lines = data.read_text().splitlines()
    # Ten texts are in both files, and ten are there twice.
    shared = tuning.read_text().splitlines()[:10]
    data.write_text("\n".join([*lines, *shared, *lines[:10]]) + "\n")
    known, others = set(texts_in(tuning)), set(texts_in(data)) - set(texts_in(tuning))
    (ladder,), said = run(make_bundle(), data, tuning=tuning, repeats="once")
    assert (ladder.num_tuning, ladder.num_certifying) == (len(known), len(others))
    assert [file.name.rpartition("/")[2] for file in ladder.data] == ["tuning.jsonl", "data.jsonl"]
    assert f"420 texts, {len(others)} of them distinct: each counts once" in said
    (ladder,), said = run(make_bundle(), data, tuning=tuning)
    assert (ladder.num_tuning, ladder.num_certifying) == (100, 420)
    assert "texts of --tuning are in --data too" in said
    for same in (data, shutil.copyfile(data, data.with_name("copy.jsonl"))):
        with pytest.raises(UnusableData, match="again"):
            run(make_bundle(), data, tuning=same)


def test_the_promise_is_about_the_texts_as_often_as_they_came(
    make_bundle: MakeBundle, make_data: MakeData, tmp_path: Path
) -> None:
    folder, texts = make_bundle(), list(dict.fromkeys(texts_in(make_data(num_texts=1000))))
    differs = ~recording_of(folder, texts).same()[0]  # the first exit answers otherwise
    message = texts[int(np.flatnonzero(differs)[0])]
    log = write_texts(tmp_path / "log.jsonl", [*texts, *[message] * (len(texts) // 4)])
    broken = {}
    for repeats in ("count", "once"):
        ladder = certified(folder, log, repeats=repeats)
        certificates = [c for rung in ladder.rungs for c in rung.certificates]
        assert {c.repeats for c in certificates} == {repeats}
        assert {c.n for c in certificates} == {ladder.num_certifying}
        both = recording_of(folder, [message])
        leaving = [r for r in ladder.rungs if r.certificate("disagreement")]
        broken[repeats] = any(not both.agrees(both.taken(rung.rule))[0] for rung in leaving)
    assert broken == {"count": False, "once": True}


def test_what_repeats_is_said_with_what_the_other_reading_would_give(
    make_bundle: MakeBundle, make_data: MakeData, tmp_path: Path
) -> None:
    folder, texts = make_bundle(), list(dict.fromkeys(texts_in(make_data(num_texts=600))))
    spaced = [f"  {text.replace(' ', '   ')}" for text in texts]  # the same tokens
    data = write_texts(tmp_path / "twice.jsonl", texts)
    assert "repeat the tokens" not in command(folder, data, "--unlabelled").stdout
    once = ladder_of(folder)
    write_texts(data, [*texts, *spaced])
    said = command(folder, data, "--unlabelled")
    assert "of those that certify repeat the tokens of others, and each counts" in said.stdout
    twice = ladder_of(folder)
    assert twice.num_certifying > 1.8 * once.num_certifying
    card = with_card(folder)
    flag = f"--flag={LABELS['single_label'][0]}=0.5"
    said = command(folder, data, "--unlabelled", flag)
    assert "1 % missed and 1 % false alarms takes" in said.stdout
    command(folder, data, "--unlabelled", "--repeats", "once", flag)
    again = ladder_of(folder)
    assert (again.num_tuning, again.num_certifying) == (once.num_tuning, once.num_certifying)
    certificates = [
        c for rung in [*again.rungs, *again.decisions[0].rungs] for c in rung.certificates
    ]
    assert {each.repeats for each in certificates} == {"once"}
    assert "certify, each once" in (card / "README.md").read_text()


def test_the_ladders_may_go_into_a_model_folder_too(
    make_bundle: MakeBundle, make_data: MakeData, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    with pytest.raises(TrainingFailed, match=r"is no model folder: config\.json is missing"):
        run(make_bundle(), make_data(), model=model)
    (model / "config.json").write_text("{}")
    (model / "README.md").write_text("# Mine\n")
    (ladder,), _ = run(make_bundle(), make_data(), model=model)
    assert Calibration.model_validate_json((model / CALIBRATION).read_bytes()).ladders == (ladder,)
    assert "## Certified rules" in (model / "README.md").read_text()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"exits": (1, 3)}, InvalidRequest, "must be ascending layers out of 1, 2, 4"),
        ({"exits": (4,)}, TrainingFailed, "has a single exit: no text can leave early"),
        ({"precisions": ("int8",)}, DeviceUnavailable, "has no int8 variant; it has fp32"),
        ({"tuning_share": 1e-9}, UnusableData, "texts are too few: 0 to tune"),
    ],
)
def test_what_cannot_be_certified_is_refused_and_changes_nothing(
    make_bundle: MakeBundle,
    make_data: MakeData,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    folder = make_bundle()
    before = contents(folder)
    with pytest.raises(error, match=message):
        run(folder, make_data(num_texts=50), **options)
    assert contents(folder) == before


def test_an_interrupt_while_texts_run_changes_nothing_and_says_what_is_certified(
    make_bundle: MakeBundle, make_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_bundle()
    before = contents(folder)
    monkeypatch.setattr(calibrating, "recorded", Mock(side_effect=KeyboardInterrupt))
    result = command(folder, make_data())
    assert result.exit_code != 0
    assert "stopped: certified so far: nothing" in result.stderr
    assert contents(folder) == before


def test_a_bundle_that_cannot_be_written_is_refused_before_texts_run(
    make_bundle: MakeBundle, make_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, data = make_bundle(), make_data()
    refused = Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr("models.staging.tempfile.TemporaryFile", refused)
    with pytest.raises(TrainingFailed, match="cannot be written"):
        run(folder, data)


def test_an_interrupt_while_files_are_replaced_waits_until_they_fit_together(
    make_bundle: MakeBundle, make_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = with_card(make_bundle())
    # A shell starts what runs in the background with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(
        stored, "rename", at_first_rename(lambda: os.kill(os.getpid(), signal.SIGINT))
    )
    with pytest.raises(KeyboardInterrupt):
        run(folder, make_data())
    assert ladder_of(folder)
    assert not list(folder.glob(".*"))


def test_a_bundle_whose_calibration_was_killed_between_two_renames_is_repaired(
    make_bundle: MakeBundle, make_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    folder, data = with_card(make_bundle()), make_data()
    run(folder, data)
    with monkeypatch.context() as patch:
        patch.setattr(stored, "rename", at_first_rename(kill))
        with pytest.raises(Killed):
            run(folder, data, delta=0.1)
    with pytest.raises(InvalidBundle, match="is damaged"):
        load_bundle(folder)
    _, said = run(folder, data, exits=(1, 4))
    assert "the manifest was older than the calibration, and was brought up to date" in said
    assert len(load_bundle(folder).calibration.ladders) == 2


def at_first_rename(act: Callable[[], None]) -> Callable[[Path, Path], None]:
    """Return a rename that acts after it has renamed its first file."""
    acted = []

    def rename(source: Path, target: Path) -> None:
        source.replace(target)
        if not acted:
            acted.append(True)
            act()

    return rename


def test_a_bundle_that_is_damaged_elsewhere_is_not_repaired(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data(num_texts=60)
    run(folder, data)
    good = (folder / CALIBRATION).read_bytes()
    (folder / CALIBRATION).write_bytes(good[:-20])
    with pytest.raises(InvalidBundle, match=r"calibration\.json is damaged"):
        run(folder, data)
    (folder / CALIBRATION).write_bytes(good)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidBundle, match=r"tokenizer\.json is damaged"):
        run(folder, data)
    with pytest.raises(InvalidBundle, match=f"{MANIFEST} is missing"):
        run(folder.parent, data)


def test_one_screen_names_texts_bounds_rules_and_what_is_lacking(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data(num_texts=600)
    result = command(folder, data, "--unlabelled", "--delta", "0.1")
    assert result.exit_code == 0, result.output
    ladder = ladder_of(folder)
    assert (
        f"fp32, exits 1, 2, 4: {ladder.num_tuning} texts chose the rules, "
        f"{ladder.num_certifying} others certify (delta 0.1)"
    ) in result.stdout
    rows = [line.split() for line in result.stdout.splitlines() if line.split()[1:2] == ["%"]]
    assert [row[:2] for row in rows[:5]] == [[f"{e:g}", "%"] for e in (0.5, 1, 2, 3, 5)]
    # 460 texts without a loss would certify 0.5 % at this delta.
    missing = 460 - ladder.num_certifying
    assert f"at most 0.5 %: too few texts; {missing} more that certify" in result.stdout
    assert "running texts: " in result.stderr
    assert result.stdout.count("fastest certified rule") == 1
    assert f"offramp recommend {folder} --max-disagreement 1%" in result.stdout
    assert f"offramp serve {folder} --standalone" in result.stdout
    everything = command(folder, data, "--unlabelled", "--verbose")
    assert everything.stdout.count("fastest certified rule") == 2  # scores too


def test_the_next_command_asks_a_reference_for_what_can_be_had(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder = make_bundle()
    same = shutil.copytree(folder, folder.with_name("reference"))
    said = command(folder, make_data(num_texts=120), "--unlabelled", "--reference", same).stdout
    assert "none: too few texts" in said
    assert "too often" not in said, "full depth never differs from its copy"
    words = shlex.split(said.rpartition("offramp recommend ")[2].partition("`")[0])
    assert offramp("recommend", *words).exit_code == 0


def test_options_say_which_columns_exits_and_precisions(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data(num_texts=60)
    records = [json.loads(line) for line in data.read_text().splitlines()]
    renamed = [{"Q": each["text"], "A": "w1 w2", "C": each["label"]} for each in records]
    data.write_text("".join(f"{json.dumps(record)}\n" for record in renamed))
    assert isinstance(command(folder, data).exception, UnusableData)
    columns = ["--text-columns", "Q,A", "--label-column", "C"]
    result = command(folder, data, *columns, "--active-exits", "2,4", "--precision", "fp32")
    assert result.exit_code == 0, result.output
    assert [each.exits for each in load_bundle(folder).calibration.ladders] == [(2, 4)]
    for wrong in ("two", ""):
        result = command(folder, data, "--active-exits", wrong)
        expected = f"--active-exits '{wrong}': must be layers such as 2,4,6"
        with pytest.raises(InvalidRequest, match=expected):
            raise result.exception or AssertionError


class OnCertifying:
    """Rules tried on the texts that certify a bundle, as a dry run does."""

    def __init__(self, folder: Path) -> None:
        bundle, self.ladder = load_bundle(folder), ladder_of(folder)
        recording = bundle.certifying("fp32")
        assert recording is not None
        times = list(map(float, self.ladder.exits))
        self._served = ServedLadder(
            recording.traits, recording.temperatures, lambda rule: times, self.ladder
        )
        scores = ScoreMap(bundle.score_temperatures("fp32"))
        reader = AnswerReader(recording.traits, scores, self.ladder.tolerance)
        self._trial = Trial(Texts.recorded(recording), self._served, reader)

    def totals(self, rule: ExitRule, flag: dict[str, float] | None = None) -> Totals:
        chosen = ChosenExit(self._served.compile(rule), settings=Settings(flag=flag))
        return self._trial.totals(chosen)


@pytest.mark.parametrize(
    ("task", "label", "learned"),
    [
        ("single_label", "positive", True),
        ("multi_label", "glad", False),
        ("token", "PER", False),
        ("regression", None, True),
    ],
)
def test_rungs_tried_on_the_certifying_texts_have_the_figures_of_their_certificates(
    make_bundle: MakeBundle, make_data: MakeData, task: Task, label: str | None, learned: bool
) -> None:
    folder, flag = make_bundle(task, learned=learned), {label: 0.6} if label else None
    run(folder, make_data(task), flag=flag)
    tried = OnCertifying(folder)
    decisions = tried.ladder.decisions[0] if flag else None
    of_flag = [(rung, flag) for rung in (decisions.rungs if decisions else ())]
    for rung, flagged in [*((rung, None) for rung in tried.ladder.rungs), *of_flag]:
        found = tried.totals(rung.rule, flagged)
        assert found.texts == tried.ladder.num_certifying
        assert found.layers / found.texts == pytest.approx(tried.ladder.mean_layers(rung), 1e-12)
        assert found.differ / found.texts == pytest.approx(rung.disagreement, 1e-12)
        assert not flagged or not decisions or found.due == decisions.num_flagged
        lost = {"missed": (found.missed, found.due)}
        lost["false_alarms"] = found.false_alarms, found.texts - found.due
        for certificate in rung.certificates:
            if certificate.loss in lost:
                count, of = lost[certificate.loss]
                assert (count / of, of) == (certificate.observed, certificate.n)
    assert len({rung.disagreement for rung in tried.ladder.rungs}) > 1


def test_one_that_would_be_large_is_not_kept(
    make_bundle: MakeBundle, make_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, data = make_bundle(), make_data(num_texts=60)
    run(folder, data)
    assert load_bundle(folder).certifying("fp32") is not None
    monkeypatch.setattr(stored, "MOST_CERTIFYING_BYTES", 1000)
    run(folder, data)
    bundle = load_bundle(folder)
    assert bundle.certifying("fp32") is None
    assert not any(name.startswith(CERTIFYING) for name in bundle.manifest.files)
