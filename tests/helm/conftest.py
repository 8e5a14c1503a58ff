"""The chart, rendered on demand."""

from collections.abc import Callable

import pytest

from tests.helm.chart import NoHelm, Rendered, helm, render

Render = Callable[..., Rendered]


@pytest.fixture(scope="session", autouse=True)
def _helm() -> None:
    """Skip where there is no Helm."""
    try:
        helm()
    except NoHelm as reason:
        pytest.skip(str(reason))


@pytest.fixture
def rendered() -> Render:
    """Render with values, as a mapping or as `--set` takes them."""
    return render
