"""What a request asks: inputs (texts, pairs of texts, token ids), and when each may leave."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Discriminator, Field, StringConstraints, Tag, model_validator

from serve.errors import InvalidRequest
from serve.policy.document import ExitChoice, ProfileName
from serve.policy.flag import Flag
from serve.policy.profile import SpecialTokens, Windows
from serve.policy.target import Degrade
from serve.rules.traits import Task
from serve.tokenization.entities import OF_WORDS, Aggregation
from serve.tokenization.inputs import Ids, Input
from serve.tokenization.tokenizer import Text
from serve.validation import RequestModel

NonEmpty = Annotated[str, StringConstraints(strict=True, pattern=r"\S")]
# A bound that fits numpy's integers; the vocabulary of the model is checked later.
Id = Annotated[int, Field(ge=0, lt=2**31)]

# Validation runs on the event loop, before `max_inputs` of the server and the model are known.
MAX_LIST = 10_000
# In the place of inputs that are more, so that none of them is looked at before they are refused.
TOO_MANY: Final = ["-"] * (MAX_LIST + 1)
# No model takes as many.
MAX_IDS = 65_536

# `fail_fast`, because naming thousands of wrong items would block the event loop.
TokenIds = Annotated[list[Id], Field(min_length=1, max_length=MAX_IDS, fail_fast=True)]

_OBJECTS = '{"text": ..., "text_pair": ...} or {"input_ids": [...]}'


class TextInput(RequestModel):
    """A text, or a pair of texts for models that take two."""

    text: NonEmpty
    text_pair: NonEmpty | None = None


class IdsInput(RequestModel):
    """Token ids, from the model's own tokenizer."""

    @model_validator(mode="before")
    @classmethod
    def _check_alone(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.keys().isdisjoint(TextInput.model_fields):
            raise ValueError("give either text or input_ids, not both")
        return given

    input_ids: TokenIds = Field(
        description="Token ids, special tokens included, without padding. Never truncated."
    )
    token_type_ids: TokenIds | None = Field(
        default=None, description="One per token: 1 for the second text of a pair. Default: 0."
    )


def _kind_of_input(value: Any) -> str | None:
    if isinstance(value, list):
        return "<list>"
    return _one_input(value)


def _one_input(value: Any) -> str | None:
    if isinstance(value, str):
        return "<text>"
    if isinstance(value, IdsInput) or (isinstance(value, dict) and "input_ids" in value):
        return "<ids>"
    return "<object>" if isinstance(value, dict | TextInput) else None


OneInput = Annotated[
    Annotated[NonEmpty, Tag("<text>")]
    | Annotated[TextInput, Tag("<object>")]
    | Annotated[IdsInput, Tag("<ids>")],
    Discriminator(
        _one_input,
        custom_error_type="input",
        custom_error_message=f"must be a text or an object {_OBJECTS}",
    ),
]

Inputs = Annotated[
    Annotated[NonEmpty, Tag("<text>")]
    | Annotated[TextInput, Tag("<object>")]
    | Annotated[IdsInput, Tag("<ids>")]
    | Annotated[
        list[OneInput],
        Field(min_length=1, max_length=MAX_LIST, fail_fast=True),
        Tag("<list>"),
    ],
    Discriminator(
        _kind_of_input,
        custom_error_type="inputs",
        custom_error_message=f"must be a text, an object {_OBJECTS}, or a list of them",
    ),
]


MAX_TIMEOUT_MS = 600_000

Extra = Literal["logits", "exits"]

_WITHOUT_SCORES: dict[Task, str] = {"regression": "one value", "token": "every entity it finds"}


class ProfileObject(RequestModel):
    """A profile of the live policy; the same as its bare name."""

    profile: ProfileName


def _kind_of_exit(value: Any) -> str:
    others = ("rule", "target")
    is_object = isinstance(value, dict) and "profile" in value and not value.keys() & others
    return "<object>" if is_object or isinstance(value, ProfileObject) else "<choice>"


Exit = Annotated[
    Annotated[ExitChoice, Tag("<choice>")] | Annotated[ProfileObject, Tag("<object>")],
    Discriminator(_kind_of_exit),
]


class ClassifyRequest(RequestModel):
    """The inputs to classify, and when each may leave the model."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"inputs": "The movie was awesome."},
                {
                    "inputs": "The movie was awesome.",
                    "exit": {"target": {"max_disagreement": 0.01}},
                },
                {
                    "inputs": ["The movie was awesome.", "You are good at messing up."],
                    "exit": {"rule": "entropy", "threshold": 0.2, "min_layer": 2},
                    "top_k": 1,
                    "timeout_ms": 500,
                },
                {"inputs": "The movie was awesome.", "exit": {"profile": "fast"}},
                {"inputs": {"input_ids": [2, 17, 40, 3]}, "return": ["logits", "exits"]},
            ]
        }
    )

    model: str | None = Field(
        default=None, description="Name of a model; may be left out when only one is served."
    )
    inputs: Inputs = Field(description="A text, an object, or a list of them.")
    exit: Exit | None = Field(
        default=None,
        description="When inputs leave: a target, a rule, the name of a profile, or an object "
        "with it. Default: what the live policy says.",
    )
    top_k: int | None = Field(
        default=None, ge=1, description="Return only the k best scores. For models with labels."
    )
    aggregation: Aggregation | None = Field(
        default=None,
        description="For token classification: how tokens become entities. `none`: each token is "
        "an entity; `simple`: neighbours of one kind make an entity; `first`, `average`, `max`: "
        "as `simple`, but all tokens of a word get the label of its first token, of their mean "
        "probabilities, or of the token with the highest probability. Default: simple.",
    )
    returned: list[Extra] = Field(
        default=[],
        alias="return",
        max_length=8,
        fail_fast=True,
        description="More fields for the results: the `logits` of the answer; the outputs of all "
        "`exits` on the input's way (with both, their logits too).",
    )
    timeout_ms: float | None = Field(
        default=None,
        gt=0,
        le=MAX_TIMEOUT_MS,
        description="After this time, a text leaves with its best answer so far (reason "
        "`deadline`); if any text has no answer yet, the request fails with 504.",
    )
    truncate: bool = Field(default=False, description="Cut texts that are too long.")
    flag: Flag | None = Field(
        default=None,
        description="For each label, the probability from which on it flags a text: results then "
        "have `flagged` and `flags`. Of tokens, the score of any entity of the label. "
        "Default: what the profile says.",
    )
    windows: Windows | None = Field(
        default=None,
        description="Cut texts that are too long into windows, each of which leaves by itself. "
        "Default: what the profile says.",
    )
    special_tokens: SpecialTokens | None = Field(
        default=None,
        description="What special tokens such as `[SEP]` in a text are: `text`, characters like "
        "others, or `ids`, the tokens. Default: what the profile says, or else `ids`.",
    )
    degrade: Degrade | None = Field(
        default=None,
        description="How far inputs may move to faster certified rules while the server is "
        "overloaded: `false` for not at all, or an object with `max_disagreement` or `max_loss`. "
        "It never goes beyond what the policy and the profile allow. Default: what these say, "
        "and not at all for a target or a rule of the request's own.",
    )
    priority: Literal["high", "normal", "low"] = Field(
        default="normal",
        description="Order among the waiting texts; a text that has waited long goes first.",
    )

    @property
    def exit_choice(self) -> ExitChoice | None:
        """The target, the rule or the profile's name in `exit`."""
        return self.exit.profile if isinstance(self.exit, ProfileObject) else self.exit

    def read_inputs(self) -> list[Input]:
        """Return the inputs as a list."""
        given = self.inputs if isinstance(self.inputs, list) else [self.inputs]
        return [_input_of(each) for each in given]


def check_task_fields(body: ClassifyRequest, inputs: Sequence[Input], task: Task) -> None:
    """Check the fields that only some tasks have.

    Raises:
        InvalidRequest: a field is for models of other tasks, or for texts only.
    """
    if body.aggregation is not None and task != "token":
        raise InvalidRequest(
            "aggregation: is for models that label tokens; this one labels whole inputs: leave "
            "aggregation out"
        )
    if body.top_k is not None and task in _WITHOUT_SCORES:
        raise InvalidRequest(
            f"top_k: this model gives {_WITHOUT_SCORES[task]}, of which there is no choice: leave "
            "top_k out"
        )
    if body.aggregation in OF_WORDS and any(isinstance(each, Ids) for each in inputs):
        raise InvalidRequest(
            f"aggregation: {body.aggregation} is for texts; token ids do not tell where words "
            "begin: use none or simple"
        )


def _input_of(given: str | TextInput | IdsInput) -> Input:
    if isinstance(given, str):
        return Text(given)
    if isinstance(given, IdsInput):
        return Ids(given.input_ids, given.token_type_ids)
    return Text(given.text, given.text_pair)
