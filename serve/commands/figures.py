"""What a server's metrics say of a stretch of time.

The console reckons the same in `serve/console/static/metrics.js`; a test compares the two.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from prometheus_client.parser import text_string_to_metric_families

# Reads of a model and changes of it are no classifications.
_OPERATORS: Final = re.compile(r"/v1/(models|aliases)(/[^:]*)?")

# Numbers beyond it are no counts.
_MOST: Final = 2.0**63
# What is counted, and by which label.
_COUNTED: Final = {
    "requests_total": "code",
    "request_duration_seconds_bucket": "le",
    "exits_total": "layer",
    "layers_run_total": "model",
    "layers_saved_total": "model",
}

Series = tuple[str, str]  # what is counted, and its label's value
Label = TypeVar("Label", str, int, float)


@dataclass
class Counts:
    """What a page says of one model.

    Attributes:
        grown: what its replicas have counted since the first page that was read.
        queue_s: of the replica with the longest queue.
        by_guardrail: the guardrail has made the live policy.
        served: what was counted of a model stays on the page when it is unloaded.
    """

    grown: Counter[Series] = field(default_factory=Counter)
    queue_s: float = 0.0
    policy_version: int = 0
    by_guardrail: bool = False
    served: bool = False


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


class Growth:
    """Adds up what the pages of a server, read one after the other, count more than before.

    The growth of each replica is taken first, then the sum, so a replica that ends takes nothing
    away. One that counts less than before has begun anew. One that is met for the first time counts
    from there on.
    """

    def __init__(self) -> None:
        # What each replica has counted of each model.
        self._last: dict[str, dict[str, Counter[Series]]] = {}
        self._grown: dict[str, Counter[Series]] = {}

    def read(self, text: str, at_s: float) -> Sample:
        """Return what stands on a page; what Offramp would not write is skipped.

        Raises:
            ValueError: it is no page of metrics.
        """
        sample, counted = Sample(at_s), dict[str, dict[str, Counter[Series]]]()
        for family in text_string_to_metric_families(text):
            for name, labels, value, *_ in family.samples:
                if 0 <= value < _MOST:
                    _take(sample, counted, name.removeprefix("offramp_"), labels, value)
        for replica, models in counted.items():
            for model, counts in models.items():
                self._add(replica, model, counts)
        self._last |= counted
        for name, shown in sample.models.items():
            shown.grown = self._grown.get(name, Counter()).copy()
        return sample

    def _add(self, replica: str, model: str, counts: Counter[Series]) -> None:
        before = self._last[replica].get(model, Counter()) if replica in self._last else counts
        anew = any(counts[key] < before[key] for key in before)
        grown = self._grown.setdefault(model, Counter())
        for key, count in counts.items():
            grown[key] += count if anew else count - before[key]


def _take(
    sample: Sample,
    counted: dict[str, dict[str, Counter[Series]]],
    name: str,
    labels: dict[str, str],
    value: float,
) -> None:
    """Take a line of a page; most are of no use here."""
    if name in ("replicas_running", "replicas_wanted"):
        setattr(sample, name.removeprefix("replicas_"), int(value))
    elif name == "alias_info":
        sample.aliases[labels.get("alias", "")] = labels.get("model", "")
    elif labels.get("model") and not _OPERATORS.fullmatch(labels.get("route", "")):
        model = labels["model"]
        _show(sample.models.setdefault(model, Counts()), name, value)
        if label := labels.get(_COUNTED.get(name, "")):
            of_replica = counted.setdefault(labels.get("replica", ""), {})
            of_replica.setdefault(model, Counter())[name, label] += int(value)


def _show(counts: Counts, name: str, value: float) -> None:
    match name:
        case "queue_seconds":
            counts.queue_s = max(counts.queue_s, value)
        case "policy_version":
            counts.policy_version = max(counts.policy_version, int(value))
        case "policy_by_guardrail":
            counts.by_guardrail = counts.by_guardrail or value > 0
        case "model_info":
            counts.served = True


def between(older: Sample, newer: Sample, name: str) -> Figures | None:
    """Return what has happened to a model, None if one of the samples lacks it."""
    before, after = older.models.get(name), newer.models.get(name)
    seconds = newer.at_s - older.at_s
    if before is None or after is None or seconds <= 0:
        return None
    grown = {key: count - before.grown[key] for key, count in after.grown.items()}
    requests, exits = _of(grown, "requests_total", str), _of(grown, "exits_total", int)
    texts = sum(exits.values())
    run, saved = (grown.get((f"layers_{each}_total", name), 0) for each in ("run", "saved"))
    latency = _of(grown, "request_duration_seconds_bucket", float)
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


def _of(grown: dict[Series, int], name: str, read: Callable[[str], Label]) -> dict[Label, int]:
    """Return the counts of one kind by their label, but for labels that cannot be read."""
    found = {}
    for (kind, label), count in grown.items():
        if kind == name:
            with suppress(ValueError):
                found[read(label)] = count
    return found


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
