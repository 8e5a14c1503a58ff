"""The JSON of inputs: texts, pairs of texts, token ids."""

from typing import Annotated, Any, Final

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from serve.api.schemas.base import RequestModel
from serve.tokenization.inputs import Ids, Input
from serve.tokenization.tokenizer import Text

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


def read_inputs(given: Any) -> list[Input]:
    """Return validated `Inputs` as a list."""
    return [_read(one) for one in (given if isinstance(given, list) else [given])]


def _read(one: str | TextInput | IdsInput) -> Input:
    if isinstance(one, str):
        return Text(one)
    if isinstance(one, IdsInput):
        return Ids(one.input_ids, one.token_type_ids)
    return Text(one.text, one.text_pair)
