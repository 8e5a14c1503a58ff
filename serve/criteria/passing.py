"""At which exits rows surely stay, known before they are reached.

There a runner may go on by itself (`serve.engine.runner.PassingRunner`). Where the rule counts what
exits say, it is told afterwards.
"""

import numpy as np
from numpy.typing import NDArray

from serve.criteria.gaps import COUNT_NOTHING
from serve.criteria.glance import count_on, gaps_at, tells_labels
from serve.criteria.judge import HeadOutput, judge
from serve.criteria.rule_state import KINDS, NEVER, RuleState
from serve.engine.runner import ASKED, Gaps
from serve.rules import ExitRule, PatienceRule
from serve.rules.traits import Traits

_PATIENCE = KINDS.index(PatienceRule)


def gaps_from(
    depth: int,
    rule: ExitRule,
    columns: RuleState,
    traits: Traits,
    temperatures: tuple[float, ...],
) -> Gaps | None:
    """Return (exits,) the gaps below which all rows stay, for exits from this one on.

    None if they must be looked at in any case. Several rows, and those without one label each,
    pass only what none of them asks.

    Args:
        depth: index of the next exit.
        rule: the first row's, checked against the model.
        columns: all rows' rules and state.
        traits: of the model.
        temperatures: one per exit.
    """
    if len(columns.kind) == 1 and tells_labels(traits):
        if isinstance(rule, PatienceRule):
            return _before_patience_ends(depth, columns, traits)
        if (gaps := gaps_at(rule, traits, temperatures)) is not None:
            return gaps
    return _where_nobody_asks(depth, columns, len(traits.exits))


def come_by(
    columns: RuleState, passed: NDArray[np.float32], depth: int, temperatures: tuple[float, ...]
) -> None:
    """Tell a row's rule what the exits have said that it has passed.

    Args:
        columns: the row's; by `PatienceRule` it counts on, other rules here have nothing to count.
        passed: (exits, 1, labels) their logits, of each that it has passed.
        depth: index of the first of them.
        temperatures: one per exit of the model.
    """
    if columns.kind[0] != _PATIENCE:
        return
    for exit_index, logits in enumerate(passed, depth):
        if not count_on(logits.tolist()[0], exit_index, columns):
            said, temperature = HeadOutput(logits, None), temperatures[exit_index]
            judge(columns, said, exit_index, len(temperatures), temperature)


def _where_nobody_asks(depth: int, columns: RuleState, num_exits: int) -> Gaps | None:
    """Return that no exit is asked before the first at which one of several rows may leave."""
    if not (columns.bounded or NEVER in columns.kinds):
        return None
    if not COUNT_NOTHING.issuperset(columns.kinds):
        return None
    first_look = int(np.where(columns.kind == NEVER, columns.last, columns.first).min())
    if first_look <= depth:
        return None
    return np.where(np.arange(num_exits) < first_look, np.inf, 0).astype(np.float32)


def _before_patience_ends(depth: int, columns: RuleState, traits: Traits) -> Gaps | None:
    """Return that exits only say something while agreement of all would be too little or early."""
    agreed = -1 if columns.label[0] < 0 else int(columns.streak[0])
    enough = depth + int(columns.patience[0]) - 1 - agreed
    first_look = min(max(enough, int(columns.first[0])), int(columns.last[0]))
    if first_look <= depth:
        return None
    return np.where(np.arange(len(traits.exits)) < first_look, ASKED, 0).astype(np.float32)
