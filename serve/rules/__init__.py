"""Exit rules as JSON: one shape in requests, policies, manifests and the command line.

A rule says when a row may leave. `ExitRule` validates what can be known without a model;
`check_rule` checks it against one model's exits, labels and task. docs/rules.md has each
rule's definition, and where it differs from the code of the system it comes from.
"""

from serve.rules.agreement import ConfidentPatienceRule, PatienceRule, VotingRule
from serve.rules.certainty import (
    ClassesRule,
    ConfidenceRule,
    EntropyRule,
    LearnedRule,
    MarginRule,
    NormalizedEntropyRule,
)
from serve.rules.check import check_rule, entropy_ceiling, rules_for
from serve.rules.exit_rule import EXIT_RULE, ExitRule
from serve.rules.fixed import LayerRule, NeverRule
from serve.rules.rule import PartwiseRule, Rule

__all__ = [
    "EXIT_RULE",
    "ClassesRule",
    "ConfidenceRule",
    "ConfidentPatienceRule",
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
    "entropy_ceiling",
    "rules_for",
]
