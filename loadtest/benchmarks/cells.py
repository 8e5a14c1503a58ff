"""The measured cells, in a file that grows a line with each; none is measured twice."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from loadtest.http.client import Json


class Key(NamedTuple):
    """What a cell is of."""

    suite: str  # a model and its texts
    contender: str
    round: int
    load: str  # such as "closed 16 x 1"


class Cells:
    """All cells of a file."""

    def __init__(self, path: Path, settings: Json) -> None:
        """Read what earlier runs have measured. A line that a kill cut short is measured again.

        Args:
            path: the file.
            settings: of all cells; lines of other settings are left alone.
        """
        self._path, self._settings, self.by_key = path, settings, dict[Key, Json]()
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().split("\n") if path.exists() else [""]
        for line in lines[:-1]:
            cell = json.loads(line)
            if settings.items() <= cell.items():
                self.by_key[Key(*(cell[name] for name in Key._fields))] = cell
        if lines[-1]:
            path.write_text("\n".join([*lines[:-1], ""]))

    def missing(
        self, suite: str, contender: str, round_: int, loads: Iterable[str]
    ) -> Sequence[str]:
        """Return those of the loads that are not measured."""
        return [x for x in loads if Key(suite, contender, round_, x) not in self.by_key]

    def add(self, key: Key, figures: Json) -> None:
        """Write a cell."""
        self.by_key[key] = key._asdict() | self._settings | figures
        with self._path.open("a") as file:
            file.write(json.dumps(self.by_key[key]) + "\n")
