"""The parts of the Dockerfile that tests read."""

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"


class Instruction(NamedTuple):
    """One instruction: its name, and what follows with lines joined."""

    name: str
    text: str


@cache
def stages() -> tuple[tuple[Instruction, ...], ...]:
    """Return the instructions by stage; lines before the first FROM are a stage too."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not re.match(r"\s*#", line)]
    joined = "\n".join(lines).replace("\\\n", "")
    found: list[list[Instruction]] = [[]]
    for line in joined.splitlines():
        if line.strip():
            name, _, text = line.partition(" ")
            if name == "FROM":
                found.append([])
            found[-1].append(Instruction(name, text.strip()))
    return tuple(map(tuple, found))


def texts(name: str, stage: int) -> list[str]:
    return [text for found, text in stages()[stage] if found == name]


def default_of(argument: str) -> str:
    """Return the default of a build argument, wherever it is declared with one."""
    declared = [t for stage in range(len(stages())) for t in texts("ARG", stage)]
    (value,) = (t.partition("=")[2] for t in declared if t.startswith(f"{argument}="))
    return value.strip('"')


def environment() -> dict[str, str]:
    """Return the environment of the last stage."""
    (text,) = texts("ENV", -1)
    return dict(pair.split("=", 1) for pair in shlex.split(text))


def command() -> list[str]:
    """Return the default command, without the entry point."""
    (text,) = texts("CMD", -1)
    argv: list[str] = json.loads(text)
    return argv


def run_that_says(words: str) -> str:
    """Return the only RUN that contains these words."""
    (text,) = (t for stage in range(len(stages())) for t in texts("RUN", stage) if words in t)
    return text


def lines(file: Path) -> list[str]:
    """Return the lines of a file that say something."""
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
