"""What a bundle keeps of the texts that certify it: rules tried on it give the ladder's figures."""

import pytest

from models.certification import stored
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.recording import CERTIFYING
from serve.classifier.score_map import ScoreMap
from serve.dry_run.answers import AnswerReader
from serve.dry_run.exit_trial import Totals, Trial
from serve.dry_run.texts import Texts
from serve.policy.ladder import Ladder
from serve.policy.profile import Settings
from serve.policy.resolution import ChosenExit
from serve.policy.served_ladder import ServedLadder
from serve.rules import ExitRule
from serve.rules.replay import Recording
from serve.rules.traits import Task
from tests.models.certification.conftest import MakeBundle, MakeData
from tests.models.certification.test_calibrate import run
from tests.serve.support.task_bundles import LABELS


class Tried:
    """Rules tried on the texts that certify a bundle, as a dry run does."""

    def __init__(self, bundle: Bundle) -> None:
        self.ladder, recording = ladder_of(bundle), recording_of(bundle)
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


def ladder_of(bundle: Bundle) -> Ladder:
    ladder = bundle.ladder("fp32")
    assert ladder is not None
    return ladder


def recording_of(bundle: Bundle) -> Recording:
    recording = bundle.certifying("fp32")
    assert recording is not None
    return recording


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("task", LABELS)
def test_every_rung_tried_on_it_has_the_figures_of_its_certificate(
    make_bundle: MakeBundle, make_data: MakeData, task: Task, learned: bool
) -> None:
    folder = make_bundle(task, learned=learned)
    run(folder, make_data(task))
    tried = Tried(load_bundle(folder))
    for rung in tried.ladder.rungs:
        found = tried.totals(rung.rule)
        assert found.texts == tried.ladder.num_certifying
        assert found.layers / found.texts == pytest.approx(tried.ladder.mean_layers(rung), 1e-12)
        assert found.differ / found.texts == rung.disagreement
        assert found.ms == found.layers
    assert len({rung.disagreement for rung in tried.ladder.rungs}) > 1


@pytest.mark.parametrize(
    ("task", "label"), [("single_label", "positive"), ("multi_label", "glad"), ("token", "PER")]
)
def test_every_rung_of_a_flag_misses_what_its_certificate_says(
    make_bundle: MakeBundle, make_data: MakeData, task: Task, label: str
) -> None:
    folder, flag = make_bundle(task), {label: 0.6}
    run(folder, make_data(task), flag=flag)
    tried = Tried(load_bundle(folder))
    (decided,) = tried.ladder.decisions
    assert len(decided.rungs) > 1
    for rung in decided.rungs:
        found = tried.totals(rung.rule, flag)
        assert found.due == decided.num_flagged
        assert found.layers / found.texts == pytest.approx(tried.ladder.mean_layers(rung), 1e-12)
        assert found.differ / found.texts == pytest.approx(rung.disagreement, 1e-12)
        lost = {"missed": (found.missed, found.due)}
        lost["false_alarms"] = found.false_alarms, found.texts - found.due
        for certificate in rung.certificates:
            count, of = lost[certificate.loss]
            assert (count / of, of) == (certificate.observed, certificate.n)


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
