"""Statistics of models in Triton's terms, read from our metrics."""

import threading
from collections import defaultdict
from functools import lru_cache
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from serve.classifier.classifier import Classifier
from serve.dialects.oip.schemas import VERSION

# Routes that name a model and do not classify.
_DESCRIBING = "/v1/models/{model}"

# The metrics that are read, and the labels by which their samples are kept apart.
_APART = {
    "offramp_stage_duration_seconds_count": "stage",
    "offramp_stage_duration_seconds_sum": "stage",
    "offramp_requests_total": "code",
    "offramp_batch_rows_count": "layer",
    "offramp_request_duration_seconds_sum": "",
    "offramp_exits_total": "",
    "offramp_rejected_total": "",
}

_Sums = dict[tuple[str, str], float]
# All who ask at once have the same page, which one of them reads.
_reading: Final = threading.Lock()


def statistics_of(page: bytes, classifier: Classifier) -> dict[str, Any]:
    """Return what a page of metrics says of a model since its replicas started, in Triton's terms.

    Rows that run through the first segment together are one execution. The time of `success`
    includes that of requests that got an error. `compute_input` is tokenization, `compute_infer`
    the runs of all segments, `compute_output` the judging of batches.
    """
    with _reading:
        sums = _sums(page)[classifier.name]
    first_layer = str(classifier.bundle.manifest.exit_layers[0])
    succeeded = sums["offramp_requests_total", "200"]
    return {
        "name": classifier.name,
        "version": VERSION,
        "last_inference": 0,  # not counted
        "inference_count": int(sums["offramp_exits_total", ""]),
        "execution_count": int(sums["offramp_batch_rows_count", first_layer]),
        "inference_stats": {
            "success": _duration(succeeded, sums["offramp_request_duration_seconds_sum", ""]),
            "fail": _duration(sums["offramp_rejected_total", ""]),
            "queue": _stage(sums, "queue"),
            "compute_input": _stage(sums, "tokenize"),
            "compute_infer": _stage(sums, "segment"),
            "compute_output": _stage(sums, "judge"),
            "cache_hit": _duration(0),
            "cache_miss": _duration(0),
        },
        "batch_stats": [],  # sizes are counted in ranges only
    }


def _stage(sums: _Sums, stage: str) -> dict[str, int]:
    name = "offramp_stage_duration_seconds"
    return _duration(sums[f"{name}_count", stage], sums[f"{name}_sum", stage])


def _duration(count: float, seconds: float = 0.0) -> dict[str, int]:
    return {"count": int(count), "ns": round(seconds * 1e9)}


@lru_cache(maxsize=1)
def _sums(page: bytes) -> dict[str, _Sums]:
    """Return by model the sums of its samples, by name and the label that keeps them apart."""
    sums: dict[str, _Sums] = defaultdict(lambda: defaultdict(float))
    # Most lines are of other metrics, and reading one takes long.
    lines = [line for line in page.decode().splitlines() if line.startswith(tuple(_APART))]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            apart, labels = _APART.get(sample.name), sample.labels
            if apart is not None and not _describes(labels.get("route", "")):
                sums[labels.get("model", "")][sample.name, labels.get(apart, "")] += sample.value
    return sums


def _describes(route: str) -> bool:
    return route == _DESCRIBING or route.startswith(f"{_DESCRIBING}/")
