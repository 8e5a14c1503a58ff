from collections.abc import Callable

import pytest

from loadtest.simulator.devices import Device
from loadtest.simulator.traffic import Traffic, read_mix
from serve.engine.cost_model import SegmentCost

LAYERS = 4
TICK_S = 1e-5


@pytest.fixture(scope="session")
def device() -> Device:
    """Return a device where a segment of n tokens takes 100 + n ticks."""
    return Device("easy", (SegmentCost(100 * TICK_S, TICK_S),) * LAYERS)


@pytest.fixture(scope="session")
def make_traffic() -> Callable[..., Traffic]:
    """Return a factory of traffic on models with four layers."""

    def make(exits: str = "uniform:1-4", tokens: int | None = None) -> Traffic:
        return Traffic(read_mix(exits, LAYERS), tokens)

    return make
