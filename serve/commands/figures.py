"""What a server's metrics say of a stretch of time.

The console reckons the same in `serve/console/static/metrics.js`; a test compares the two.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from prometheus_client.parser import text_string_to_metric_families

# Reads of a model and changes of it are no classifications.
_OPERATORS: Final = re.compile(r"/v1/(models|aliases)(/[^:]*)?")

Key = TypeVar("Key", str, int, float)


@dataclass
class Counts:
    """What the replicas have counted of one model up to a moment, summed."""

    requests: Counter[str] = field(default_factory=Counter)  # by status
    latency: Counter[float] = field(default_factory=Counter)  # by upper bound in s, cumulative
    exits: Counter[int] = field(default_factory=Counter)  # by layer
    layers: Counter[str] = field(default_factory=Counter)  # run and saved, by metric
    queue_s: float = 0.0  # of the replica with the longest queue
    policy_version: int = 0
    served: bool = False  # what was counted of a model stays on the page when it is unloaded

    def add(self, name: str, labels: dict[str, str], value: float) -> None:
        """Take a sample of a metric; most metrics are none of ours."""
        match name.removeprefix("offramp_"):
            case "requests_total":
                self.requests[labels["code"]] += int(value)
            case "request_duration_seconds_bucket":
                self.latency[float(labels["le"])] += int(value)
            case "exits_total":
                self.exits[int(labels["layer"])] += int(value)
            case "layers_run_total" | "layers_saved_total" as metric:
                self.layers[metric] += int(value)
            case "queue_seconds":
                self.queue_s = max(self.queue_s, value)
            case "policy_version":
                self.policy_version = max(self.policy_version, int(value))
            case "model_info":
                self.served = True


@dataclass
class Sample:
    """A page of metrics, read at a time in seconds."""

    at_s: float
    models: dict[str, Counts] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)  # the model that each names
    running: int = 1
    wanted: int = 1


class Figures(NamedTuple):
    """What has happened to one model between two samples; NaN where nothing has."""

    requests_s: float
    texts_s: float
    refused_s: float
    failed_s: float
    quantiles_ms: tuple[float, float, float]
    layers: float
    saved: float
    exits: dict[int, float]  # share of the texts by layer


def read_sample(text: str, at_s: float) -> Sample:
    """Return what stands on a page of metrics."""
    sample = Sample(at_s)
    for family in text_string_to_metric_families(text):
        for name, labels, value, *_ in family.samples:
            if name in ("offramp_replicas_running", "offramp_replicas_wanted"):
                setattr(sample, name.rpartition("_")[2], int(value))
            elif name == "offramp_alias_info":
                sample.aliases[labels["alias"]] = labels["model"]
            elif labels.get("model") and not _OPERATORS.fullmatch(labels.get("route", "")):
                sample.models.setdefault(labels["model"], Counts()).add(name, labels, value)
    return sample


def between(older: Sample, newer: Sample, model: str) -> Figures | None:
    """Return what has happened to a model, None if one of the samples lacks it."""
    before, after = older.models.get(model), newer.models.get(model)
    seconds = newer.at_s - older.at_s
    if before is None or after is None or seconds <= 0:
        return None
    requests, exits = _grown(before.requests, after.requests), _grown(before.exits, after.exits)
    texts = sum(exits.values())
    layers = _grown(before.layers, after.layers)
    run, saved = layers.get("layers_run_total", 0), layers.get("layers_saved_total", 0)
    latency = _grown(before.latency, after.latency)
    return Figures(
        requests_s=sum(requests.values()) / seconds,
        texts_s=texts / seconds,
        refused_s=sum(n for code, n in requests.items() if code[0] == "4") / seconds,
        failed_s=sum(n for code, n in requests.items() if code[0] == "5") / seconds,
        quantiles_ms=(_ms(latency, 0.5), _ms(latency, 0.95), _ms(latency, 0.99)),
        layers=run / texts if texts else math.nan,
        saved=saved / (run + saved) if run + saved else math.nan,
        exits={layer: n / texts if texts else 0.0 for layer, n in sorted(exits.items())},
    )


def _grown(before: Counter[Key], after: Counter[Key]) -> dict[Key, int]:
    """Return how much counts have grown; nothing where one has shrunk: a replica has ended."""
    shrunk = any(after[key] < before[key] for key in after)
    return {key: 0 if shrunk else after[key] - before[key] for key in after}


def _ms(latency: dict[float, int], share: float) -> float:
    """Return the milliseconds below which this share lies, as Prometheus reckons it."""
    total, low_s, below = latency.get(math.inf, 0), 0.0, 0
    for bound_s, count in sorted(latency.items()):
        if total and count >= share * total:
            if bound_s == math.inf:
                return 1000 * low_s
            part = (share * total - below) / (count - below or 1)
            return 1000 * (low_s + (bound_s - low_s) * part)
        low_s, below = bound_s, count
    return math.nan
