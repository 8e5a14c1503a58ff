"""The tensors that every model takes and gives by the Open Inference Protocol."""

from typing import Final

from serve.api.schemas import ResponseModel
from serve.bundle.manifest import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from serve.classifier.classifier import Classifier

TEXT, TEXT_PAIR = "TEXT", "TEXT_PAIR"
BYTES, INT64, INT32, FP32 = "BYTES", "INT64", "INT32", "FP32"
# Models have no other one.
VERSION: Final = "1"
PLATFORM: Final = "offramp"


class TensorSpec(ResponseModel):
    """A tensor's declaration; -1 in the shape stands for any size, and the first axis is rows."""

    name: str
    datatype: str
    shape: tuple[int, ...]


def _spec(name: str, datatype: str, shape: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=shape)


_COLUMN = (-1, 1)
# A request gives TEXT, with TEXT_PAIR or not, or else input_ids, with the two others or not.
INPUTS: Final = {
    spec.name: spec
    for spec in (
        _spec(TEXT, BYTES, _COLUMN),
        _spec(TEXT_PAIR, BYTES, _COLUMN),
        _spec(INPUT_IDS, INT64, (-1, -1)),
        _spec(ATTENTION_MASK, INT64, (-1, -1)),
        _spec(TOKEN_TYPE_IDS, INT64, (-1, -1)),
    )
}


def input_specs(classifier: Classifier) -> list[TensorSpec]:
    """Return what a model takes; each of them may be left out, see `INPUTS`."""
    left_out = set[str]()
    if not classifier.inputs.takes_pairs:
        left_out.add(TEXT_PAIR)
    if classifier.inputs.num_types == 1:
        left_out.add(TOKEN_TYPE_IDS)
    return [spec for name, spec in INPUTS.items() if name not in left_out]


def output_specs(classifier: Classifier) -> list[TensorSpec]:
    """Return what a model gives."""
    manifest = classifier.bundle.manifest
    num_labels = len(manifest.labels)
    exits = [_spec("exit_layer", INT32, _COLUMN), _spec("exit_reason", BYTES, _COLUMN)]
    match manifest.task:
        case "regression":
            return [_spec("value", FP32, _COLUMN), *exits]
        case "token":  # shorter rows are padded with zeros
            logits = _spec("logits", FP32, (-1, -1, num_labels))
            return [logits, _spec("num_tokens", INT32, _COLUMN), *exits]
    labels = [
        _spec("probabilities", FP32, (-1, num_labels)),
        _spec("label", BYTES, _COLUMN),
        *exits,
        _spec("logits", FP32, (-1, num_labels)),
        _spec("confidence", FP32, _COLUMN),
    ]
    if manifest.task == "single_label":
        labels.append(_spec("entropy", FP32, _COLUMN))
    return labels


def default_outputs(classifier: Classifier) -> list[str]:
    """Return the names of the outputs that a request gets which names none: the first four."""
    return [spec.name for spec in output_specs(classifier)[:4]]
