"""Skips the chart's tests where there is no Helm."""

import pytest

from tests.helm.chart import NoHelm, helm


@pytest.fixture(scope="session", autouse=True)
def _helm() -> None:
    try:
        helm()
    except NoHelm as reason:
        pytest.skip(str(reason))
