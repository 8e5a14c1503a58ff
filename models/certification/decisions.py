"""Which rules are certified for what a flag decides.

A rule has two sides. Texts that leave below are not flagged, so that some may be missed; texts that
leave above are flagged, so that some may be false alarms. A text leaves by a rule at the earlier of
the exits at which it would leave by either side alone. So a rule misses no text that its lower side
alone does not miss, and raises no alarm that its upper side alone does not raise: each side is
certified by itself, and what holds for two sides holds for the rule of both.
"""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.certification.path_choice import SIMPLER_LAYERS, STRIDE
from models.certification.risk_control import num_certified
from models.quality.flag import flagged
from models.quality.recorded import Recorded
from serve.classifier.score_map import ScoreMap
from serve.policy.ladder import Certificate, Decisions, Loss, Rung
from serve.rules import DecisionRule, NeverRule

EPSILONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
NUM_STEPS = 200
# How far a bound is from certainty, as a share of the flag's own distance: from hardly any text to
# nearly the flag's own threshold, which rounding must not reach.
FIRST_DOUBT, LAST_DOUBT = 1e-4, 0.99

SIDES: tuple[Loss, Loss] = ("missed", "false_alarms")

Bounds: TypeAlias = dict[str, float]  # by label
Exits: TypeAlias = NDArray[np.intp]


class Side(NamedTuple):
    """One side of a flag's rules.

    Attributes:
        loss: what it may cost.
        bounds: from strict to loose.
        exits: (bounds, rows) where each text leaves by this side alone, counted from 0.
        losses: (bounds, rows) bool, of the texts that may be lost.
    """

    loss: Loss
    bounds: list[Bounds]
    exits: Exits
    losses: NDArray[np.bool_]

    def ends(self, n: int, delta: float) -> dict[float, int]:
        """Return how many bounds, from the first on, are certified for each epsilon."""
        risks = self.losses.mean(axis=1) if self.losses.shape[1] else np.zeros(len(self.bounds))
        if not n:
            return dict.fromkeys(EPSILONS, 0)
        return {e: num_certified(risks, n, e, delta, binary=True) for e in EPSILONS}


class CertifiedFlag(NamedTuple):
    """What texts that certify say of a flag.

    Attributes:
        decisions: the certified rungs.
        below: the side by which texts may be missed.
        above: the side by which there may be false alarms.
        num_texts: that certify.
        delta: probability that a bound does not hold.
    """

    decisions: Decisions
    below: Side
    above: Side
    num_texts: int
    delta: float


class FlaggedTexts(NamedTuple):
    """Texts, and which of them each exit flags.

    Attributes:
        recorded: the texts; answers show the scores at the temperatures of its traits.
        flag: thresholds by label.
        flagged: (exits, rows) bool.
    """

    recorded: Recorded
    flag: Mapping[str, float]
    flagged: NDArray[np.bool_]

    @classmethod
    def of(cls, recorded: Recorded, flag: Mapping[str, float]) -> "FlaggedTexts":
        """Find out what each exit flags."""
        scores = ScoreMap(recorded.traits.score_temperatures)
        return cls(recorded, flag, flagged(recorded, flag, scores))

    def side(self, loss: Loss, min_layer: int | None, stride: int = 1) -> Side:
        """Try one side of the rules on the texts."""
        doubts = np.geomspace(FIRST_DOUBT, LAST_DOUBT, NUM_STEPS).tolist()[::stride]
        name, bound = ("leave_below", _below) if loss == "missed" else ("leave_above", _above)
        each = [{label: bound(t, d) for label, t in self.flag.items()} for d in doubts]
        bounds = [b for i, b in enumerate(each) if not i or b != each[i - 1]]
        rules = [DecisionRule.model_validate({name: b, "min_layer": min_layer}) for b in bounds]
        exits = np.stack([self.recorded.taken(rule).exits for rule in rules])
        own, full = self.at(exits), self.flagged[-1]
        lost = full & ~own if loss == "missed" else ~full & own
        return Side(loss, bounds, exits, lost[:, full if loss == "missed" else ~full])

    def at(self, exits: Exits) -> NDArray[np.bool_]:
        """Return (..., rows) whether texts that leave at these exits are flagged."""
        found: NDArray[np.bool_] = self.flagged[exits, np.arange(self.flagged.shape[1])]
        return found


def certify_flag(
    tuning: Recorded, certifying: Recorded, flag: Mapping[str, float], delta: float
) -> CertifiedFlag:
    """Choose the first exit by texts that tune, and certify both sides by the others."""
    texts = FlaggedTexts.of(certifying, flag)
    min_layer = first_layer(FlaggedTexts.of(tuning, flag), certifying.num_rows, delta)
    below, above = (texts.side(loss, min_layer) for loss in SIDES)
    decisions = Decisions(
        flag=dict(flag),
        num_flagged=int(texts.flagged[-1].sum()),
        rungs=_rungs(texts, below, above, min_layer, delta),
    )
    return CertifiedFlag(decisions, below, above, certifying.num_rows, delta)


def _below(threshold: float, doubt: float) -> float:
    return float(f"{threshold * doubt:.3g}")


def _above(threshold: float, doubt: float) -> float:
    return round(1 - float(f"{(1 - threshold) * doubt:.3g}"), 8)


def first_layer(tuning: FlaggedTexts, num_certifying: int, delta: float) -> int | None:
    """Return the layer before which no text is to leave; None for the first exit's.

    It is that by which texts are expected to run the fewest layers, in the mean over the bounds,
    if the texts that certify lose as much as those that tune. Later ones must save enough.
    """
    layers = tuning.recorded.traits.exits
    best, fewest = layers[0], np.inf
    for layer in layers[:-1]:
        expected = _expected_layers(tuning, layer, num_certifying / tuning.recorded.num_rows, delta)
        if expected < fewest - SIMPLER_LAYERS:
            best, fewest = layer, expected
    return None if best == layers[0] else best


def _expected_layers(tuning: FlaggedTexts, layer: int, more: float, delta: float) -> float:
    layers = np.array(tuning.recorded.traits.exits)
    below, above = (tuning.side(loss, layer, STRIDE) for loss in SIDES)
    ends = [s.ends(round(s.losses.shape[1] * more), delta) for s in (below, above)]
    expected = [
        layers[together(below, above, (ends[0][e], ends[1][e]), len(layers) - 1)].mean()
        for e in EPSILONS
    ]
    return float(np.mean(expected))


def together(below: Side, above: Side, ends: tuple[int, int], last: int) -> Exits:
    """Return (rows,) where texts leave by the loosest of so many bounds of each side."""
    exits = np.full(below.exits.shape[1], last)
    for side, end in zip((below, above), ends, strict=True):
        if end:
            exits = np.minimum(exits, side.exits[end - 1])
    return exits


def _rungs(
    texts: FlaggedTexts, below: Side, above: Side, min_layer: int | None, delta: float
) -> tuple[Rung, ...]:
    """Return the certified rules of one side and of both, from safe to fast."""
    num_exits = len(texts.recorded.traits.exits)
    shares = (*[0.0] * (num_exits - 1), 1.0)
    found = [Rung(rule=NeverRule(), exit_shares=shares, disagreement=0)]
    for low, high in product(_choices(below, delta), _choices(above, delta)):
        exits = together(below, above, (low.end, high.end), num_exits - 1)
        if (exits < num_exits - 1).any():
            rule = DecisionRule(
                leave_below=low.bounds, leave_above=high.bounds, min_layer=min_layer
            )
            found.append(_rung(texts, exits, rule, (low, high), delta))
    layers = np.array(texts.recorded.traits.exits, np.float64)
    found.sort(key=lambda rung: -float(layers @ rung.exit_shares))
    return tuple(found)


class _Choice(NamedTuple):
    """The loosest bounds of a side for an epsilon; none that the side is left to full depth."""

    loss: Loss
    end: int = 0
    epsilon: float = 0.0
    bounds: Bounds | None = None


def _choices(side: Side, delta: float) -> list[_Choice]:
    """Return what may be chosen of a side; of equal bounds the smallest epsilon."""
    found = {0: _Choice(side.loss)}
    for epsilon, end in side.ends(side.losses.shape[1], delta).items():
        if end:
            found.setdefault(end, _Choice(side.loss, end, epsilon, side.bounds[end - 1]))
    return list(found.values())


def _rung(
    texts: FlaggedTexts, exits: Exits, rule: DecisionRule, sides: Iterable[_Choice], delta: float
) -> Rung:
    own, full = texts.at(exits), texts.flagged[-1]
    lost: dict[Loss, NDArray[np.bool_]] = {"missed": ~own[full], "false_alarms": own[~full]}
    certificates = tuple(
        Certificate(
            loss=side.loss,
            epsilon=side.epsilon,
            delta=delta,
            n=len(lost[side.loss]),
            observed=float(lost[side.loss].mean()),
        )
        for side in sides
        if side.end
    )
    same = texts.recorded.same()[exits, np.arange(len(exits))]
    num_exits = len(texts.recorded.traits.exits)
    return Rung(
        rule=rule,
        exit_shares=tuple((np.bincount(exits, minlength=num_exits) / len(exits)).tolist()),
        disagreement=float(1 - same.mean()),
        certificates=certificates,
    )
