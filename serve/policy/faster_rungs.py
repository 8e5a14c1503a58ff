"""The faster certified rungs that requests move to while the queue is long."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from serve.policy.document import ExitChoice, Policy
from serve.policy.ladder import Loss
from serve.policy.problems import blame
from serve.policy.resolution import ChosenExit, Resolution, ServedRung
from serve.policy.served_ladder import ServedLadder
from serve.policy.target import Degrade, LossLimit, Overload, Target
from serve.rules import CompiledRule

_Losses: TypeAlias = tuple[tuple[Loss, float], ...]
_FasterRung: TypeAlias = tuple[CompiledRule, Resolution]


class Path(NamedTuple):
    """Where a request may go.

    Attributes:
        chosen: what it gets while the queue is short.
        faster: rungs with ever fewer layers.
    """

    chosen: ChosenExit
    faster: tuple[_FasterRung, ...]

    def at(self, level: int) -> ChosenExit:
        """Return what is so many rungs faster, or the fastest that is allowed."""
        if not level or not self.faster:
            return self.chosen
        rule, found = self.faster[min(level, len(self.faster)) - 1]
        return self.chosen._replace(rule=rule, resolution=found, moved=True)


class FasterRungs:
    """A policy's `overload`, worked out for one variant; immutable.

    Attributes:
        overload: what the policy says.
        most: the most rungs that the default or a profile may move; where none may, all there are.
        problem: why no request could move; None if some could.
    """

    def __init__(
        self,
        policy: Policy,
        overload: Overload,
        ladder: ServedLadder,
        named: Iterable[ChosenExit],
    ) -> None:
        """Take the rungs that keep the operator's limit, and what the profiles have become."""
        self.overload, self._ladder = overload, ladder
        self._rungs = _kept(ladder.rungs(policy.limits), overload.target.losses.items())
        self._below = lru_cache(256)(self._find)
        paths = [self.path(chosen, None, None) for chosen in named]
        most = max([len(path.faster) for path in paths if path], default=0)
        self.most = most or len(self._rungs)
        self.problem = self._problem(policy, moves_named=most > 0)

    def path(
        self, chosen: ChosenExit, choice: ExitChoice | None, degrade: Degrade | None
    ) -> Path | None:
        """Return where a request may go; None if it stays as it is.

        The limits of the operator, the profile and the request hold together. A request with a
        target of its own moves only if it says `degrade`.

        Args:
            chosen: what its choice has become.
            choice: its own.
            degrade: what it says of itself.
        """
        own, said = not isinstance(choice, str | None), chosen.settings.degrade
        if (
            not chosen.movable
            or chosen.settings.flag
            or degrade is False
            or said is False
            or (own and degrade is None)
        ):
            return None
        assert chosen.resolution is not None
        limits = [each for each in (self.overload.target, said, degrade) if each]
        layers = chosen.resolution.rung.expected_layers
        return Path(chosen, self._below(layers, _together(limits)))

    def _problem(self, policy: Policy, moves_named: bool) -> str | None:
        if not self._rungs:
            target = Target.model_validate(self.overload.target.model_dump())
            blamed = blame(target, policy.limits, self._ladder).removeprefix("; ")
            why = self._ladder.lacks(target) or "no certified rule loses as little"
            return f"overload.target: there is no faster rule to move to: {blamed or why}"
        if moves_named or policy.limits.overrides == "any":
            return None
        return (
            "overload: no request could move. Only certified targets without a flag move, and only "
            "to rules that lose more than the target, and at most overload.target and their "
            'degrade; write the default as a stricter target, such as {"target": '
            '{"max_disagreement": 0.01}} below 0.03, or leave overload out'
        )

    def _find(self, layers: float, losses: _Losses) -> tuple[_FasterRung, ...]:
        """Return rungs with fewer layers, from safe to fast."""
        faster = [rung for rung in _kept(self._rungs, losses) if rung.expected_layers < layers]
        faster.sort(key=lambda rung: -rung.expected_layers)
        asked = losses[0][0]
        compiled = (
            (self._ladder.compile(rung.rule), Resolution(rung, rung.certificate(asked)))
            for rung in faster
        )
        return tuple(compiled)


def _kept(rungs: Iterable[ServedRung], losses: Iterable[tuple[Loss, float]]) -> list[ServedRung]:
    """Return the rungs that leave early and are certified to lose no more."""
    bounds = list(losses)
    return [
        rung
        for rung in rungs
        if not rung.full_depth and all(rung.keeps(loss, most, True) for loss, most in bounds)
    ]


def _together(limits: Iterable[LossLimit]) -> _Losses:
    """Return the bounds of all limits, the first limit's first."""
    found: dict[Loss, float] = {}
    for limit in limits:
        own: Mapping[Loss, float] = limit.losses
        found |= {loss: min(most, found.get(loss, most)) for loss, most in own.items()}
    return tuple(found.items())
