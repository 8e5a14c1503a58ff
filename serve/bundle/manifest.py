"""`manifest.json`: what a bundle holds. Export writes it and the server reads it."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, PositiveFloat, model_validator

from serve.policy.document import Policy
from serve.rules import ExitRule
from serve.rules.small import SmallModel
from serve.rules.traits import Task, Traits
from serve.validation import Frozen, unsaid

FORMAT_VERSION: Literal[3] = 3

Precision = Literal["fp32", "int8", "fp16"]
# Variants whose heads are graphs of their own; the others have a joined graph, for CPUs.
FOR_GPUS: tuple[Precision, ...] = ("fp16",)
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# Bounded, because numpy and the tokenizer's library compute with machine words.
PositiveInt = Annotated[int, Field(gt=0, lt=2**31)]
# Bounded, because the server keeps something for every layer, label and file.
MOST_LAYERS, MOST_LABELS, MOST_FILES = 1000, 2**16, 10_000
Layer = Annotated[int, Field(gt=0, le=MOST_LAYERS)]

INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS = "input_ids", "attention_mask", "token_type_ids"
HIDDEN, KEEP, LOGITS = "hidden", "keep", "logits"
# A head's prediction of its own error, if the head has learned it.
UNCERTAINTY = "uncertainty"
# Not `hidden`: in an ONNX graph no output may have an input's name.
HIDDEN_OUT = "hidden_out"
# Inputs of the joined graph beside those of the segments: the first segment to run, and the one
# whose exit ends the run, both counted from 0.
FIRST, UNTIL = "first", "until"
# Inputs of graphs for GPUs, in the place of an attention mask. `lengths` is (rows,) int32, the
# number of each row's tokens. `attention_lengths` begins with the same numbers, see
# `serve.runtime.step_inputs`. `shares` is (rows, tokens, 1): one divided by the row's length at
# tokens, 0 at padding.
LENGTHS, ATTENTION_LENGTHS, SHARES = "lengths", "attention_lengths", "shares"
# The name of every variant's file of weights.
WEIGHTS = "weights.bin"


def hidden_after(segment: int) -> str:
    """Return the joined graph's output of hidden states after a segment, counted from 0."""
    return f"hidden_after_{segment}"


class Exit(Frozen):
    """An exit head's place, and the temperature its confidence is read at."""

    layer: Layer
    temperature: PositiveFloat = 1.0


class ExitHead(Frozen):
    """Kind of the exit heads: how tokens are pooled, a dense layer or none, linear classifier.

    The last head of a model that was a classifier before may be of another kind.

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


class Table(Frozen):
    """The table that answers before the first layer: see `serve.rules.table`.

    Attributes:
        file: path inside the bundle of a `.npy` file: (vocabulary + buckets, labels) float16, the
            rows of token ids first.
        buckets: the number of rows that 2-grams and 3-grams share.
        bias: (labels,) added to the logits.
        temperature: at which its confidence is read.
    """

    file: str
    buckets: Annotated[int, Field(gt=0, le=2**24)]
    # Bounded, because the server computes in float32.
    bias: tuple[Annotated[float, Field(ge=-1e6, le=1e6)], ...]
    temperature: Annotated[float, Field(ge=0.01, le=100)] = 1.0


class TrainedFor(Frozen):
    """The method and the rule that the heads were trained for.

    Attributes:
        method: the system or paper, such as DeeBERT.
        rule: the rule with the settings that the checkpoint states; None where it states none.
    """

    # Bundles may still hold the two fields that were here before.
    model_config = ConfigDict(frozen=True, extra="ignore")

    method: str | None = None
    rule: ExitRule | None = None


class HeadGraph(Frozen):
    """The ONNX graph of an exit head alone.

    Attributes:
        file: path inside the bundle.
        inputs: hidden, which is a body's hidden_out, and what the head reads of lengths and shares.
        outputs: logits and, if the head has learned it, uncertainty.
    """

    file: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = (LOGITS,)


class Segment(Frozen):
    """The graph from the exit before to its own; for GPUs the head is a graph of its own.

    Attributes:
        file: path inside the bundle.
        exit_layer: transformer layers executed once this segment has run.
        inputs: on CPUs the first segment takes input_ids, attention_mask and, if the model has
            them, token_type_ids; a later one takes hidden, keep and attention_mask. On GPUs a body
            takes input_ids and token_type_ids, or hidden, and what it reads of lengths,
            attention_lengths and shares.
        outputs: hidden_out, which is the next segment's hidden, and without `head` the head's
            outputs: logits and, if the head has learned it, uncertainty.
        head: the head's own graph in a variant for GPUs, else None.
    """

    file: str
    exit_layer: Layer
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = (HIDDEN_OUT, LOGITS)
    head: HeadGraph | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The segment's files."""
        return (self.file, self.head.file) if self.head else (self.file,)

    @property
    def head_outputs(self) -> tuple[str, ...]:
        """What the exit head gives."""
        outputs = self.head.outputs if self.head else self.outputs
        return tuple(name for name in outputs if name != HIDDEN_OUT)


class Parity(Frozen):
    """How far a variant is from the original model, measured at export.

    Attributes:
        max_logit_error: largest absolute difference of any logit at any exit.
        label_agreement: share of (row, exit) pairs with the original's label, 0 to 1.
        rows: how many rows were compared.
    """

    max_logit_error: float
    label_agreement: float
    rows: int


class Variant(Frozen):
    """The graphs of one precision, and their parity.

    Attributes:
        segments: first to last.
        joined: path of the graph that holds all segments, for one session on a CPU. Its inputs are
            those of the segments, first and until; its outputs are the heads' outputs, of the head
            at until only, and `hidden_after` each segment but the last. None in a variant for
            GPUs, whose segments have heads of their own.
        weights: path of the file that holds the weights of all these graphs.
    """

    segments: tuple[Segment, ...]
    weights: str
    parity: Parity
    joined: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """All files of the variant."""
        segments = [path for segment in self.segments for path in segment.paths]
        return (*segments, *([self.joined] if self.joined else []), self.weights)


class Source(Frozen):
    """The model and the versions that the bundle was made with.

    Attributes:
        compared: what export compared with transformers' own classes, or why it could not; empty
            in bundles of versions that did not compare.
    """

    model: str
    offramp_version: str
    torch_version: str
    transformers_version: str
    compared: str = ""


class Manifest(Frozen):
    """Everything the server needs to know of a bundle besides the files.

    Attributes:
        exits: ascending; the last one's layer is the model's depth.
        labels: label names by id.
        max_tokens: longest input, special tokens included.
        vocab_size: token ids are below it; None if the tokenizer's vocabulary is the bound.
        type_vocab_size: token types are below it.
        learned: whether every head also gives `uncertainty`, its own predicted error.
        value_is_logit: whether clients of transformers expect the sigmoid of a regression's value,
            because its `config.json` states one label and no `problem_type` regression.
        table: what may answer before the first layer, whatever the variant; None for nothing.
        small: the small model in front, whose bundle lies in a folder of this one; None without.
        policy: default rule and profiles until an operator replaces them.
        files: sha256 of every other file in the bundle, by path.
    """

    format_version: Literal[3] = FORMAT_VERSION
    task: Task = "single_label"
    labels: tuple[str, ...] = Field(min_length=1, max_length=MOST_LABELS)
    exits: tuple[Exit, ...] = Field(min_length=1, max_length=MOST_LAYERS)
    width: PositiveInt
    max_tokens: PositiveInt
    pad_id: int = Field(ge=0, lt=2**31)
    token_types: bool
    vocab_size: PositiveInt | None = None
    type_vocab_size: PositiveInt = 2
    learned: bool = False
    value_is_logit: bool = False
    head: ExitHead
    trained_for: TrainedFor = TrainedFor()
    table: Table | None = unsaid()
    small: SmallModel | None = unsaid()
    policy: Policy = Policy()
    variants: dict[Precision, Variant] = Field(min_length=1)
    source: Source
    files: dict[str, Sha256] = Field(max_length=MOST_FILES)

    @property
    def exit_layers(self) -> tuple[int, ...]:
        """Exit layers, ascending."""
        return tuple(e.layer for e in self.exits)

    @property
    def traits(self) -> Traits:
        """The model as its exit rules see it."""
        return Traits(
            self.exit_layers,
            self.labels,
            self.task,
            self.learned,
            self.max_tokens,
            table_temperature=self.table.temperature if self.table else None,
            small=self.small,
        )

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
            self._check_heads(f"variants.{precision}", variant, precision in FOR_GPUS)
        self._check_task()
        if self.table:
            self._check_table(self.table)
        if self.small:
            self._check_small(self.small)
        self.policy.check(self.traits)
        return self

    def _check_heads(self, place: str, variant: Variant, for_gpus: bool) -> None:
        apart = {segment.head is not None for segment in variant.segments}
        if apart != {for_gpus} or (variant.joined is None) != for_gpus:
            wanted = "a head for every segment and no" if for_gpus else "no heads but a"
            raise ValueError(f"{place} needs {wanted} joined graph")

    def _check_task(self) -> None:
        if self.task != "regression" and len(self.labels) < 2:
            raise ValueError(f"task {self.task} needs at least two labels")
        if self.task == "regression" and len(self.labels) > 1:
            raise ValueError("task regression has one label: its value's name")
        if (self.task == "token") != (self.head.pooling == "tokens"):
            raise ValueError("task token, and no other, needs head.pooling 'tokens'")

    def _check_table(self, table: Table) -> None:
        if self.task not in ("single_label", "multi_label"):
            raise ValueError(f"table: a model of task {self.task} has none")
        if len(table.bias) != len(self.labels):
            raise ValueError(f"table.bias must have {len(self.labels)} numbers, one per label")
        if table.file not in self.files:
            raise ValueError(f"table: no sha256 for {table.file}")

    def _check_small(self, small: SmallModel) -> None:
        if self.task not in ("single_label", "multi_label"):
            raise ValueError(f"small: a model of task {self.task} has none in front")
        if self.files.get(small.manifest) != small.sha256:
            raise ValueError(f"small: its sha256 is not that of {small.manifest}")

    def _check_variant(self, place: str, variant: Variant) -> None:
        found = tuple(segment.exit_layer for segment in variant.segments)
        if found != self.exit_layers:
            raise ValueError(
                f"{place} has segments for layers {list(found)}, but the exits are at "
                f"{list(self.exit_layers)}"
            )
        silent = [s.file for s in variant.segments if UNCERTAINTY not in s.head_outputs]
        if self.learned and silent:
            raise ValueError(f"{place}: {silent[0]} gives no uncertainty, though learned is true")
        unlisted = [path for path in variant.paths if path not in self.files]
        if unlisted:
            raise ValueError(f"{place}: no sha256 for {unlisted[0]}")
