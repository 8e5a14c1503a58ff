"""The tensors that models take and give, and the JSON of the Open Inference Protocol."""

from typing import Any, Final

from pydantic import Field, PrivateAttr

from serve.api.schemas import ResponseModel, SparseModel, examples
from serve.bundle.manifest import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from serve.classifier.classifier import Classifier
from serve.validation import RequestModel

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


Parameters = dict[str, Any]

MAX_AXES = 8
MAX_OUTPUTS = 16


class InferInput(RequestModel):
    """A tensor that is given."""

    name: str = Field(description=", ".join(INPUTS))
    shape: list[int] = Field(max_length=MAX_AXES, description="Rows first.")
    datatype: str = Field(description="BYTES or INT64.")
    parameters: Parameters | None = Field(
        default=None, description="`binary_data_size` where the elements follow the JSON."
    )
    data: list[Any] | None = Field(
        default=None, description="The elements, nested as the shape is or in one list."
    )


class InferOutput(RequestModel):
    """A tensor that is asked for."""

    name: str
    parameters: Parameters | None = Field(
        default=None,
        description="`binary_data`: whether the elements follow the JSON. `classification`: how "
        "many of the best classes are given, as texts `score:index:label`.",
    )


class InferRequest(RequestModel):
    """The inputs of one or more rows, and the outputs that are wanted."""

    model_config = examples(
        {
            "inputs": [
                {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["An awesome movie."]}
            ],
            "outputs": [{"name": "label"}, {"name": "exit_layer"}],
        }
    )

    id: str | None = Field(default=None, max_length=1000, description="The answer has the same id.")
    model_name: str | None = Field(
        default=None, description="KServe's client sends it; it must be the model of the path."
    )
    parameters: Parameters | None = Field(
        default=None,
        description="`exit`: a target, rule or profile as in /v1/classify, an object as JSON in a "
        "text. `timeout` in microseconds or `timeout_ms`. `priority`: 1 high, 2 normal, 3 low. "
        "`truncate`. `binary_data_output`: whether outputs are binary where they do not say.",
    )
    inputs: list[InferInput] = Field(min_length=1, max_length=len(INPUTS))
    outputs: list[InferOutput] | None = Field(default=None, max_length=MAX_OUTPUTS)

    # The bytes behind the JSON.
    _binary: bytes = PrivateAttr(default=b"")

    def keep_binary(self, binary: bytes) -> None:
        """Keep the bytes behind the JSON; what reads the body calls this."""
        self._binary = binary

    @property
    def binary(self) -> bytes:
        """The bytes behind the JSON."""
        return self._binary


class OutputTensor(SparseModel):
    """A tensor in an answer; `data` is missing where its elements follow the JSON."""

    name: str
    datatype: str
    shape: list[int]
    parameters: Parameters | None = None
    data: list[Any] | None = None


class InferResponse(SparseModel):
    """The answer to an inference."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: Parameters
    outputs: list[OutputTensor]


class IndexRequest(RequestModel):
    """The models to list."""

    ready: bool = Field(default=False, description="Whether to list ready models alone.")


class LoadRequest(RequestModel):
    """The body that Triton's clients send with a load or an unload."""

    parameters: Parameters | None = Field(
        default=None, description="Only `unload_dependents` is taken; it changes nothing here."
    )


class IndexEntry(ResponseModel):
    """A model in the list."""

    name: str
    version: str
    state: str
    reason: str


class ModelMetadata(ResponseModel):
    """The inputs and outputs of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    properties: dict[str, str] = Field(
        description="`bundle`: the SHA-256 of the bundle's manifest. Over gRPC it is among the "
        "parameters of the model's configuration."
    )
