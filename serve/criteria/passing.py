"""At which exits a row that is alone surely stays, known before they are reached.

There a runner may go on by itself (`serve.runner.PassingRunner`). Where the rule counts what exits
say, it is told afterwards.
"""

import numpy as np
from numpy.typing import NDArray

from serve.columns import KINDS, RuleColumns
from serve.criteria.glance import count_on, gaps_at, tells_labels
from serve.judge import Said, judge
from serve.rules import ExitRule, PatienceRule
from serve.runner import Gaps
from serve.traits import Traits

_PATIENCE = KINDS.index(PatienceRule)


def gaps_from(
    depth: int,
    rule: ExitRule,
    columns: RuleColumns,
    traits: Traits,
    temperatures: tuple[float, ...],
) -> Gaps | None:
    """Return (exits,) the gaps below which the row stays, for exits from this one on.

    None if it must be looked at in any case.

    Args:
        depth: index of the next exit.
        rule: the row's, checked against the model.
        columns: its state.
        traits: of the model.
        temperatures: one per exit.
    """
    if not isinstance(rule, PatienceRule):
        return gaps_at(rule, traits, temperatures)
    return _before_patience_ends(depth, columns, traits) if tells_labels(traits) else None


def come_by(
    columns: RuleColumns, passed: NDArray[np.float32], depth: int, temperatures: tuple[float, ...]
) -> None:
    """Tell a row's rule what the exits have said that it has passed.

    Args:
        columns: the row's; by `PatienceRule` it counts on, other rules here have nothing to count.
        passed: (exits, 1, labels) their logits.
        depth: index of the first of them.
        temperatures: one per exit of the model.
    """
    if columns.kind[0] != _PATIENCE:
        return
    for exit_index, logits in enumerate(passed, depth):
        if not count_on(logits.tolist()[0], exit_index, columns):
            said, temperature = Said(logits, None), temperatures[exit_index]
            judge(columns, said, exit_index, len(temperatures), temperature)


def _before_patience_ends(depth: int, columns: RuleColumns, traits: Traits) -> Gaps | None:
    """Return no gap where even agreement everywhere would not be enough, or is too early."""
    agreed = -1 if columns.label[0] < 0 else int(columns.streak[0])
    enough = depth + int(columns.patience[0]) - 1 - agreed
    first_look = min(max(enough, int(columns.first[0])), int(columns.last[0]))
    if first_look <= depth:
        return None
    return np.where(np.arange(len(traits.exits)) < first_look, np.inf, 0).astype(np.float32)
