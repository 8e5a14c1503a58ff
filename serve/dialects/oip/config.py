"""A model's configuration as Triton's clients read it."""

from typing import Any

from serve.classifier.classifier import Classifier
from serve.dialects.oip.parameters import PRIORITIES
from serve.dialects.oip.signature import BYTES, PLATFORM, TensorSpec, input_specs, output_specs


def model_config(classifier: Classifier, max_inputs: int) -> dict[str, Any]:
    """Return the configuration of a model that takes so many rows in a request."""
    return {
        "name": classifier.name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "max_batch_size": max_inputs,
        "input": [{**_entry(spec), "optional": True} for spec in input_specs(classifier)],
        "output": [_entry(spec) for spec in output_specs(classifier)],
        "dynamic_batching": {"priority_levels": max(PRIORITIES), "default_priority_level": 2},
        "parameters": {"bundle": {"string_value": classifier.bundle.sha256}},
        "model_transaction_policy": {"decoupled": False},
    }


def _entry(spec: TensorSpec) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == BYTES else spec.datatype
    dims = list(spec.shape[1:])  # without the rows, which `max_batch_size` speaks of
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": dims}
