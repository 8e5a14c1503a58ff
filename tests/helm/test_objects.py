"""Whatever is installed with, the API server takes it."""

from typing import Any

import pytest

from tests.helm.chart import CHART, run_helm
from tests.helm.conftest import Render
from tests.helm.matrix import CASES
from tests.helm.schemas import VERSIONS, check

CUSTOM_KINDS = {"RayService", "PodMonitor", "ServiceMonitor", "ScrapeConfig", "PrometheusRule"}


@pytest.mark.parametrize("values", [v for _, v in CASES], ids=[name for name, _ in CASES])
def test_objects_follow_their_schemas(rendered: Render, values: dict[str, Any]) -> None:
    release = rendered(values)
    names = [(o["kind"], o["metadata"]["name"]) for o in release]
    assert len(set(names)) == len(names)
    for version in VERSIONS:
        for thing in release:
            check(thing, version)


def test_matrix_makes_every_kind(rendered: Render) -> None:
    made = {kind for _, values in CASES for kind in rendered(values).kinds()}
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
        "Service",
        "ServiceAccount",
    }


def test_schemas_notice_a_field_that_does_not_exist(rendered: Render) -> None:
    release = rendered()
    release.cluster["headGroupSpec"]["template"]["spec"]["colour"] = "red"
    with pytest.raises(Exception, match="colour"):
        check(release.the("RayService"), VERSIONS[0])
    release = rendered()
    release.the("RayService")["spec"]["colour"] = "red"
    with pytest.raises(Exception, match="colour"):
        check(release.the("RayService"), VERSIONS[0])


@pytest.mark.parametrize("mode", ["rayservice", "deployment"])
def test_lint_has_no_complaint(mode: str) -> None:
    said = run_helm("lint", CHART, "--strict", "--set", f"mode={mode}")
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said
