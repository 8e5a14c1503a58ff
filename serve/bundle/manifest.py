"""`manifest.json`: what a bundle holds. Export writes it and the server reads it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator

from serve.policy.document import Policy
from serve.rules import ExitRule
from serve.rules.traits import Task, Traits

FORMAT_VERSION: Literal[2] = 2

Precision = Literal["fp32", "int8", "fp16"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# Bounded, because numpy and the tokenizer's library compute with machine words.
PositiveInt = Annotated[int, Field(gt=0, lt=2**31)]

INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS = "input_ids", "attention_mask", "token_type_ids"
HIDDEN, KEEP, LOGITS = "hidden", "keep", "logits"
# A head's prediction of its own error, if the head has learned it.
UNCERTAINTY = "uncertainty"
# Not `hidden`: in an ONNX graph no output may have an input's name.
HIDDEN_OUT = "hidden_out"
# Inputs of the joined graph beside those of the segments: the first segment to run, and the one
# whose exit ends the run, both counted from 0.
FIRST, UNTIL = "first", "until"
# The name of every variant's file of weights.
WEIGHTS = "weights.bin"


def hidden_after(segment: int) -> str:
    """Return the joined graph's output of hidden states after a segment, counted from 0."""
    return f"hidden_after_{segment}"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Exit(_Frozen):
    """An exit head's place, and the temperature its confidence is read at."""

    layer: PositiveInt
    temperature: PositiveFloat = 1.0


class Head(_Frozen):
    """Kind of the exit heads: how tokens are pooled, a dense layer or none, linear classifier.

    Attributes:
        kind: `attention` reads all tokens by attention of its own before it pools (FastBERT).
        pooling: `tokens` is none: every token has logits of its own.
        pooler: whether there is a dense layer before the classifier.
        activation: after the dense layer.
        norm: whether a layer norm follows the activation.
    """

    kind: Literal["pooled", "attention"] = "pooled"
    pooling: Literal["first", "mean", "tokens"]
    pooler: bool
    activation: Literal["tanh", "relu", "gelu", "none"] = "tanh"
    norm: bool = False


class TrainedFor(_Frozen):
    """The method and the rule that the heads were trained for.

    Attributes:
        method: the system or paper, such as DeeBERT.
        rule: the rule with the settings that the checkpoint states; None where it states none.
    """

    # Bundles may still hold the two fields that were here before.
    model_config = ConfigDict(frozen=True, extra="ignore")

    method: str | None = None
    rule: ExitRule | None = None


class Segment(_Frozen):
    """One ONNX graph, from the exit before to its own.

    Attributes:
        file: path inside the bundle.
        exit_layer: transformer layers executed once this segment has run.
        inputs: the first segment takes input_ids, attention_mask and, if the model has
            them, token_type_ids; a later one takes hidden, keep and attention_mask.
        outputs: hidden_out, which is the next segment's hidden, and the head's outputs: logits
            and, if the head has learned it, uncertainty.
    """

    file: str
    exit_layer: PositiveInt
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = (HIDDEN_OUT, LOGITS)


class Parity(_Frozen):
    """How far a variant is from the original model, measured at export.

    Attributes:
        max_logit_error: largest absolute difference of any logit at any exit.
        label_agreement: share of (row, exit) pairs with the original's label, 0 to 1.
        rows: how many rows were compared.
    """

    max_logit_error: float
    label_agreement: float
    rows: int


class Variant(_Frozen):
    """The graphs of one precision, and their parity.

    Attributes:
        segments: first to last.
        joined: path of the graph that holds all segments, for one session on a CPU. Its inputs are
            those of the segments, first and until; its outputs are the heads' outputs, of the head
            at until only, and `hidden_after` each segment but the last.
        weights: path of the file that holds the weights of all these graphs.
    """

    segments: tuple[Segment, ...]
    joined: str
    weights: str
    parity: Parity

    @property
    def paths(self) -> tuple[str, ...]:
        """All files of the variant."""
        return (*(segment.file for segment in self.segments), self.joined, self.weights)


class Source(_Frozen):
    """The model and the versions that the bundle was made with."""

    model: str
    offramp_version: str
    torch_version: str
    transformers_version: str


class Manifest(_Frozen):
    """Everything the server needs to know of a bundle besides the files.

    Attributes:
        exits: ascending; the last one's layer is the model's depth.
        labels: label names by id.
        max_tokens: longest input, special tokens included.
        vocab_size: token ids are below it; None if the tokenizer's vocabulary is the bound.
        type_vocab_size: token types are below it.
        learned: whether every head also gives `uncertainty`, its own predicted error.
        policy: default rule and profiles until an operator replaces them.
        files: sha256 of every other file in the bundle, by path.
    """

    format_version: Literal[2] = FORMAT_VERSION
    task: Task = "single_label"
    labels: tuple[str, ...] = Field(min_length=1)
    exits: tuple[Exit, ...] = Field(min_length=1)
    width: PositiveInt
    max_tokens: PositiveInt
    pad_id: int = Field(ge=0, lt=2**31)
    token_types: bool
    vocab_size: PositiveInt | None = None
    type_vocab_size: PositiveInt = 2
    learned: bool = False
    head: Head
    trained_for: TrainedFor = TrainedFor()
    policy: Policy = Policy()
    variants: dict[Precision, Variant] = Field(min_length=1)
    source: Source
    files: dict[str, Sha256]

    @property
    def exit_layers(self) -> tuple[int, ...]:
        """Exit layers, ascending."""
        return tuple(e.layer for e in self.exits)

    @property
    def traits(self) -> Traits:
        """The model as its exit rules see it."""
        return Traits(self.exit_layers, self.labels, self.task, self.learned, self.max_tokens)

    @property
    def num_layers(self) -> int:
        """The model's depth: the layers behind an answer at the last exit."""
        return self.exits[-1].layer

    @model_validator(mode="after")
    def _check(self) -> "Manifest":
        layers = self.exit_layers
        if list(layers) != sorted(set(layers)):
            raise ValueError(f"exits must be ascending and distinct, not {list(layers)}")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels must be distinct")
        for precision, variant in self.variants.items():
            self._check_variant(f"variants.{precision}", variant)
        self._check_task()
        self.policy.check(self.traits)
        return self

    def _check_task(self) -> None:
        if self.task != "regression" and len(self.labels) < 2:
            raise ValueError(f"task {self.task} needs at least two labels")
        if self.task == "regression" and len(self.labels) > 1:
            raise ValueError("task regression has one label: its value's name")
        if (self.task == "token") != (self.head.pooling == "tokens"):
            raise ValueError("task token, and no other, needs head.pooling 'tokens'")

    def _check_variant(self, place: str, variant: Variant) -> None:
        found = tuple(segment.exit_layer for segment in variant.segments)
        if found != self.exit_layers:
            raise ValueError(
                f"{place} has segments for layers {list(found)}, but the exits are at "
                f"{list(self.exit_layers)}"
            )
        silent = [s.file for s in variant.segments if UNCERTAINTY not in s.outputs]
        if self.learned and silent:
            raise ValueError(f"{place}: {silent[0]} gives no uncertainty, though learned is true")
        unlisted = [path for path in variant.paths if path not in self.files]
        if unlisted:
            raise ValueError(f"{place}: no sha256 for {unlisted[0]}")
