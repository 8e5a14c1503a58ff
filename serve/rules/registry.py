"""Every exit rule, and the one JSON type that all of them make up.

A further rule is a module with a subclass of `Rule`, and a line in `RULES`.
"""

from functools import reduce
from operator import or_
from typing import Annotated, Any, TypeAlias

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from serve.rules.kinds.confidence import ClassesRule, ConfidenceRule
from serve.rules.kinds.decision import DecisionRule
from serve.rules.kinds.fixed import LayerRule, NeverRule
from serve.rules.kinds.patience import ConfidentPatienceRule, PatienceRule
from serve.rules.kinds.threshold import (
    EntropyRule,
    LearnedRule,
    MarginRule,
    NormalizedEntropyRule,
)
from serve.rules.kinds.voting import VotingRule
from serve.rules.rule import Rule
from serve.rules.traits import Traits

RULES: list[type[Rule]] = [
    EntropyRule,
    NormalizedEntropyRule,
    ConfidenceRule,
    MarginRule,
    PatienceRule,
    ConfidentPatienceRule,
    VotingRule,
    LearnedRule,
    ClassesRule,
    DecisionRule,
    LayerRule,
    NeverRule,
]


def rules_for(traits: Traits) -> list[str]:
    """Return the names of the rules that a model can follow."""
    return [name_of(rule) for rule in RULES if rule.unsuited(traits) is None]


def name_of(rule: type[Rule]) -> str:
    """Return a rule's name in JSON."""
    name: str = rule.model_fields["rule"].default
    return name


class _OneOfTheRules:
    """Lets pydantic choose among `RULES`, as they are when a document is read."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: _adapter().validate_python(value)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(_adapter().core_schema)


_adapters: dict[tuple[type[Rule], ...], TypeAdapter[Any]] = {}


def _adapter() -> TypeAdapter[Any]:
    """Return what reads any rule; its kind is told by the field `rule`."""
    rules = tuple(RULES)
    if rules not in _adapters:
        any_rule: Any = Annotated[reduce(or_, rules), Field(discriminator="rule")]
        _adapters[rules] = TypeAdapter(any_rule)
    return _adapters[rules]


ExitRule: TypeAlias = Annotated[Rule, _OneOfTheRules()]

EXIT_RULE: TypeAdapter[Rule] = TypeAdapter(ExitRule)
