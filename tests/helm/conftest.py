"""The chart, rendered on demand."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
def rendered(tmp_path: Path) -> Render:
    """Render with values, as a mapping or as `--set` takes them."""

    def make(values: dict[str, Any] | None = None, sets: Sequence[str] = ()) -> Rendered:
        return render(values, sets, folder=tmp_path)

    return make
