"""The API server accepts every object that the chart makes."""

import pytest

from tests.helm.chart import BASE, CHART, render, run_helm
from tests.helm.matrix import CASES, Values, every_case
from tests.helm.schemas import VERSIONS, check

CUSTOM_KINDS = {"RayService", "PodMonitor", "ServiceMonitor", "ScrapeConfig", "PrometheusRule"}


@every_case
def test_objects_follow_their_schemas(values: Values) -> None:
    release = render(values)
    names = [(o["kind"], o["metadata"]["name"]) for o in release]
    assert len(set(names)) == len(names)
    for version in VERSIONS:
        for thing in release:
            check(thing, version)


def test_matrix_makes_every_kind() -> None:
    made = {kind for values in CASES.values() for kind in render(values).kinds()}
    assert made == CUSTOM_KINDS | {
        "ConfigMap",
        "Deployment",
        "HTTPRoute",
        "HorizontalPodAutoscaler",
        "Ingress",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "ScaledObject",
        "Secret",
        "Service",
        "ServiceAccount",
    }


def test_schemas_notice_a_field_that_does_not_exist() -> None:
    for part in ("pod", "RayService"):
        release = render()
        pod = release.cluster["headGroupSpec"]["template"]["spec"]
        changed = pod if part == "pod" else release.the("RayService")["spec"]
        changed["colour"] = "red"
        with pytest.raises(Exception, match="colour"):
            check(release.the("RayService"), VERSIONS[0])


@pytest.mark.parametrize("mode", ["rayservice", "deployment"])
def test_lint_has_no_complaint(mode: str) -> None:
    said = run_helm("lint", CHART, "--strict", "-f", BASE, "--set", f"mode={mode}")
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said
