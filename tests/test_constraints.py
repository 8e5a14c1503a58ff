"""constraints.txt names a version for whatever pyproject.toml asks for, and no address."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED = [Requirement(line) for line in PROJECT["dependencies"]] + [
    Requirement(line)
    for name, extra in PROJECT["optional-dependencies"].items()
    for line in extra
    if name != "gpu"  # only hosts with a GPU install it
]
LINES = [
    line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
]
PINNED = {
    canonicalize_name(name): version for name, version in (line.split("==") for line in LINES)
}


@pytest.mark.parametrize("asked", [a for a in ASKED if a.name != PROJECT["name"]], ids=str)
def test_every_dependency_is_pinned_within_its_bounds(asked: Requirement) -> None:
    if asked.marker is None or asked.marker.evaluate():
        assert PINNED[canonicalize_name(asked.name)] in asked.specifier


def test_pins_are_plain_versions() -> None:
    for line in LINES:
        (pin,) = Requirement(line).specifier
        assert (pin.operator, Requirement(line).url) == ("==", None), line
        assert "+" not in pin.version, line
