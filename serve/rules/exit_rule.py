"""The rules as one type, told apart by `rule`."""

from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter

from serve.rules.agreement import ConfidentPatienceRule, PatienceRule, VotingRule
from serve.rules.certainty import (
    ClassesRule,
    ConfidenceRule,
    EntropyRule,
    LearnedRule,
    MarginRule,
    NormalizedEntropyRule,
)
from serve.rules.fixed import LayerRule, NeverRule

ExitRule: TypeAlias = Annotated[
    EntropyRule
    | NormalizedEntropyRule
    | ConfidenceRule
    | MarginRule
    | PatienceRule
    | ConfidentPatienceRule
    | VotingRule
    | LearnedRule
    | ClassesRule
    | LayerRule
    | NeverRule,
    Field(discriminator="rule"),
]

EXIT_RULE: TypeAdapter[ExitRule] = TypeAdapter(ExitRule)
