"""Recorded traffic: one request per line, JSON or CSV."""

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.simulator.errors import InvalidSimulation
from loadtest.simulator.lengths import MAX_TOKENS


@dataclass(frozen=True, slots=True)
class Trace:
    """What was recorded.

    Attributes:
        arrival_s: ascending.
        tokens: one per request.
        exits: exit layers, counted from 1; None if the trace does not say.
    """

    arrival_s: NDArray[np.float64]
    tokens: NDArray[np.int64]
    exits: NDArray[np.int64] | None


def read_trace(path: Path, num_layers: int) -> Trace:
    """Read lines with `arrival_s`, `tokens` and, in all or none, `exit_layer`.

    Args:
        path: `.csv` with a header line, else a JSON object per line.
        num_layers: of the model; no exit layer may lie beyond.

    Raises:
        InvalidSimulation: says which line is wrong, and how.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSimulation(f"trace {path}: cannot be read: {error}") from error
    records = _csv(text) if path.suffix == ".csv" else _json(text, path)
    requests = [_request(record, f"{path}, line {line}", num_layers) for line, record in records]
    if len(requests) < 2:
        raise InvalidSimulation(
            f"trace {path}: has {len(requests)} requests; at least 2 are needed"
        )
    arrival_s, tokens, exits = zip(*sorted(requests, key=lambda r: r[0]), strict=True)
    if any(exits) and not all(exits):
        raise InvalidSimulation(f"trace {path}: exit_layer must stand in all lines or in none")
    return Trace(np.array(arrival_s), np.array(tokens), np.array(exits) if exits[0] else None)


def _csv(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    yield from enumerate(csv.DictReader(text.splitlines()), 2)


def _json(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InvalidSimulation(f"trace: {path}, line {number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise InvalidSimulation(f"trace: {path}, line {number}: expected a JSON object")
        yield number, record


def _request(record: dict[str, Any], place: str, num_layers: int) -> tuple[float, int, int]:
    """Return arrival, tokens and exit layer, 0 if there is none."""
    arrival_s = _number(record, "arrival_s", place)
    tokens = _number(record, "tokens", place)
    layer = (
        _number(record, "exit_layer", place) if record.get("exit_layer") not in (None, "") else 0
    )
    if tokens != int(tokens) or not 1 <= tokens <= MAX_TOKENS:
        raise InvalidSimulation(
            f"trace: {place}: tokens must be a whole number from 1 to {MAX_TOKENS}, not {tokens:g}"
        )
    if layer != int(layer) or not 0 <= layer <= num_layers:
        raise InvalidSimulation(
            f"trace: {place}: exit_layer must be a layer from 1 to {num_layers}, not {layer:g}"
        )
    return arrival_s, int(tokens), int(layer)


def _number(record: dict[str, Any], key: str, place: str) -> float:
    try:
        value = float(record[key])
    except KeyError:
        raise InvalidSimulation(f"trace: {place}: {key} is missing") from None
    except (TypeError, ValueError):
        raise InvalidSimulation(
            f"trace: {place}: {key} must be a number, not {record[key]!r}"
        ) from None
    if not math.isfinite(value):
        raise InvalidSimulation(f"trace: {place}: {key} must be finite")
    return value
