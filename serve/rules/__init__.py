"""Exit rules: each one's JSON and arithmetic, and how the rows of a batch are judged by them.

A rule says when a row may leave. docs/rules.md has each rule's definition, and where it differs
from the code of the system it comes from.
"""

from serve.rules.compiled_rule import CompiledRule, check_rule, compile_rule
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
from serve.rules.registry import EXIT_RULE, ExitRule, rules_for
from serve.rules.rule import PartwiseRule, Rule

__all__ = [
    "EXIT_RULE",
    "ClassesRule",
    "CompiledRule",
    "ConfidenceRule",
    "ConfidentPatienceRule",
    "DecisionRule",
    "EntropyRule",
    "ExitRule",
    "LayerRule",
    "LearnedRule",
    "MarginRule",
    "NeverRule",
    "NormalizedEntropyRule",
    "PartwiseRule",
    "PatienceRule",
    "Rule",
    "VotingRule",
    "check_rule",
    "compile_rule",
    "rules_for",
]
