from export.exit_subset import fitting_calibration, fitting_policy
from serve.bundle.calibration import Calibration, VariantCalibration
from serve.policy.document import Audit, Policy
from serve.policy.ladder import Data
from serve.policy.limits import Limits
from serve.rules import EntropyRule, LayerRule, NeverRule
from tests.support.traits import two_labels

EVERY = (1, 2, 3, 4)


def test_rules_that_need_a_lost_exit_go_and_are_told() -> None:
    policy = Policy(
        default=LayerRule(layer=3),
        profiles={"low": LayerRule(layer=1), "sure": EntropyRule(threshold=0.2)},
        limits=Limits(overrides="profiles", flag="none", max_layer=1),
        detectors={"a": "low", "b": "sure", "c": "default"},
        audit=Audit(share=0.5),
    )
    fitting, notes = fitting_policy(policy, two_labels((2, 4)))
    assert fitting == Policy(
        default=NeverRule(),
        profiles={"sure": EntropyRule(threshold=0.2)},
        limits=Limits(overrides="profiles", flag="none"),
        detectors={"b": "sure", "c": "default"},
        audit=Audit(share=0.5),
    )
    assert len(notes) == 4
    assert "profile 'low'" in notes[0]
    assert "default rule" in notes[1]
    assert "limits" in notes[2]
    assert "detector 'a'" in notes[3]


def test_a_default_that_names_a_lost_profile_becomes_never() -> None:
    policy = Policy(default="low", profiles={"low": LayerRule(layer=1)})
    fitting, notes = fitting_policy(policy, two_labels((2, 4)))
    assert fitting == Policy()
    assert len(notes) == 2


def figures() -> VariantCalibration:
    return VariantCalibration(data=Data(name="dev", rows=1, sha256="0" * 64), exits=())


def test_figures_are_kept_for_their_own_precision_only() -> None:
    calibration = Calibration(variants={"fp32": figures()})
    kept, notes = fitting_calibration(calibration, EVERY, ("fp32", "int8"))
    assert kept == calibration
    assert len(notes) == 1
    assert notes[0].startswith("int8: no figures")
    kept, _ = fitting_calibration(calibration, EVERY, ("int8",))
    assert kept == Calibration()
    nothing = Calibration()
    assert fitting_calibration(nothing, EVERY, ("fp32", "int8")) == (nothing, [])
