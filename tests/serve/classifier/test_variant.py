"""The times of a variant, which all its names in a process share."""

import pytest

from serve.bundle.loader import Bundle
from serve.classifier import variant
from serve.classifier.exit_costs import ExitCosts
from serve.policy.served_ladder import ServedLadder
from serve.runtime.cpu_runner import CpuRunner


def test_two_names_of_a_bundle_have_the_times_of_the_quieter_moment(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    noises = [0.1, 0.03, 0.0]
    measured = []

    def measure(*_: object) -> ExitCosts:
        noise = noises[len(measured)]
        measured.append(noise)
        return ExitCosts((1.0 + noise,) * len(bundle.manifest.exits), 0.1, 0.1, noise)

    monkeypatch.setattr(variant, "measure_exit_costs", measure)
    monkeypatch.setattr(variant, "_measured", {})
    found = [ladder_of(bundle) for _ in range(2)]
    assert measured == [0.1, 0.03], "a busy machine is measured again, a quiet one is not"
    assert [ladder.noise for ladder in found] == [0.03, 0.03]


def ladder_of(bundle: Bundle) -> ServedLadder:
    runner = CpuRunner(bundle, "fp32", 1)
    return variant.serve_ladder(bundle, "fp32", runner, variant.variant_shape(bundle, "fp32"))
