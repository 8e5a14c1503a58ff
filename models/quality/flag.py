"""Which rules are certified for what a flag decides.

A rule has two sides. Texts that leave below are not flagged, so that some may be missed; texts that
leave above are flagged, so that some may be false alarms. A text leaves by a rule at the earlier of
the exits at which it would leave by either side alone. So a rule misses no text that its lower side
alone does not miss, and raises no alarm that its upper side alone does not raise: each side is
certified by itself, and what holds for two sides holds for the rule of both.
"""

import math
from collections.abc import Mapping
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.quality.paths import SIMPLER_LAYERS, STRIDE
from models.quality.recorded import Recorded
from models.quality.risk_control import num_certified
from serve.classifier.flagger import Flagger
from serve.classifier.score_map import ScoreMap
from serve.engine.row import Answer
from serve.policy.flag import AnyFlag
from serve.policy.ladder import Certificate, Decisions, Loss, Repeats, Rung
from serve.rules import DecisionRule, NeverRule
from serve.rules.criterion import Reason
from serve.tokenization.entities import EntityReader
from serve.tokenization.tokenizer import Tokens
from serve.tokenization.word_spans import NoWords, WordSpans

EPSILONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
NUM_STEPS = 200
# How far a bound is from certainty, as a share of the flag's own distance: from hardly any text to
# nearly the flag's own threshold, which rounding must not reach.
FIRST_DOUBT, LAST_DOUBT = 1e-4, 0.99

SIDES: tuple[Loss, Loss] = ("missed", "false_alarms")

Bounds: TypeAlias = dict[str, float]  # by label
Exits: TypeAlias = NDArray[np.intp]
_NO_IDS = np.zeros(0, np.int64)


def flagged(recorded: Recorded, flag: AnyFlag, scores: ScoreMap) -> NDArray[np.bool_]:
    """Return (layers, rows) whether an exit's answer is flagged, as the server's own flagger says.

    Args:
        recorded: of a model that can flag by these labels.
        flag: thresholds by label.
        scores: maps the exits' scores to those that answers show.
    """
    traits = recorded.traits
    reader = EntityReader(traits.labels, NoWords()) if traits.task == "token" else None
    flagger = Flagger(flag, traits, reader)
    tokens = [_tokens(recorded, row) for row in range(recorded.num_rows)]
    found = np.zeros(recorded.logits.shape[:2], np.bool_)
    before = recorded.traits.num_before
    for place, of_exit in enumerate(recorded.logits):
        index = place - before
        for row, logits in enumerate(of_exit):
            answer = Answer(logits, index, Reason.CONFIDENT, math.nan, 0.0, 0.0, index)
            found[place, row] = bool(flagger.flags(scores.answer(answer), tokens[row]))
    return found


def _tokens(recorded: Recorded, row: int) -> Tokens:
    if recorded.counted is None:
        return Tokens(_NO_IDS, _NO_IDS)
    counted = recorded.counted[row]
    spans = WordSpans([""] * len(counted), None, np.zeros(len(counted), np.bool_))
    return Tokens(_NO_IDS, _NO_IDS, counted, spans)


class Side(NamedTuple):
    """One side of a flag's rules on some texts.

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
        """Return how many bounds, from the first on, are certified by n texts for each epsilon."""
        if not n:
            return dict.fromkeys(EPSILONS, 0)
        risks = self.losses.mean(axis=1) if self.losses.shape[1] else np.zeros(len(self.bounds))
        return {e: num_certified(risks, n, e, delta, binary=True) for e in EPSILONS}


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
        scores = ScoreMap.of(recorded.traits)
        return cls(recorded, flag, flagged(recorded, flag, scores))

    def side(self, loss: Loss, min_layer: int | None, stride: int = 1) -> Side:
        """Try one side of the rules on the texts."""
        doubts = np.geomspace(FIRST_DOUBT, LAST_DOUBT, NUM_STEPS).tolist()[::stride]
        name, bound = ("leave_below", _below) if loss == "missed" else ("leave_above", _above)
        each = [{label: bound(t, d) for label, t in self.flag.items()} for d in doubts]
        bounds = [b for i, b in enumerate(each) if not i or b != each[i - 1]]
        rules = [DecisionRule.model_validate({name: b, "min_layer": min_layer}) for b in bounds]
        exits = np.stack([self.recorded.taken(rule).exits for rule in rules])
        return Side(loss, bounds, exits, self.lost(loss, exits))

    def at(self, exits: Exits) -> NDArray[np.bool_]:
        """Return (..., rows) whether texts that leave at these exits are flagged."""
        found: NDArray[np.bool_] = self.flagged[exits, np.arange(self.flagged.shape[1])]
        return found

    def lost(self, loss: Loss, exits: Exits) -> NDArray[np.bool_]:
        """Return (..., texts) which of the texts that may be lost are, leaving at these exits."""
        own, full = self.at(exits), self.flagged[-1]
        return ~own[..., full] if loss == "missed" else own[..., ~full]


def certify_flag(
    tuning: Recorded,
    certifying: Recorded,
    flag: Mapping[str, float],
    delta: float,
    repeats: Repeats = "count",
) -> Decisions:
    """Choose the first exit by texts that tune, and certify both sides by the others.

    No text leaves at a table, which is easily led by chosen words.
    """
    texts = FlaggedTexts.of(certifying.of_exits, flag)
    min_layer = first_layer(FlaggedTexts.of(tuning.of_exits, flag), certifying.num_rows, delta)
    below, above = (texts.side(loss, min_layer) for loss in SIDES)
    rungs = _rungs(texts, below, above, min_layer, delta, repeats)
    at_table = (0.0,) * certifying.traits.num_before
    return Decisions(
        flag=dict(flag),
        num_flagged=int(texts.flagged[-1].sum()),
        rungs=tuple(
            rung.model_copy(update={"exit_shares": at_table + rung.exit_shares}) for rung in rungs
        ),
    )


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
    texts: FlaggedTexts,
    below: Side,
    above: Side,
    min_layer: int | None,
    delta: float,
    repeats: Repeats,
) -> tuple[Rung, ...]:
    """Return the certified rules of one side and of both, from safe to fast."""
    layers = np.array(texts.recorded.traits.exits, np.float64)
    last = len(layers) - 1
    found = [Rung(rule=NeverRule(), exit_shares=(*[0.0] * last, 1.0), disagreement=0)]
    for (low, missed), (high, alarms) in product(_choices(below, delta), _choices(above, delta)):
        exits = together(below, above, (low, high), last)
        if (exits < last).any():
            rule = DecisionRule(
                leave_below=below.bounds[low - 1] if low else None,
                leave_above=above.bounds[high - 1] if high else None,
                min_layer=min_layer,
            )
            epsilons = zip(SIDES, (missed, alarms), strict=True)
            bounds = {loss: epsilon for loss, epsilon in epsilons if epsilon}
            found.append(_rung(texts, exits, rule, bounds, delta, repeats))
    found.sort(key=lambda rung: -float(layers @ rung.exit_shares))
    return tuple(found)


def _choices(side: Side, delta: float) -> list[tuple[int, float]]:
    """Return how many bounds of a side may be used and for which epsilon, each number once.

    Of equal numbers the smallest epsilon is returned; 0 leaves the side to full depth.
    """
    found = {0: 0.0}
    for epsilon, end in side.ends(side.losses.shape[1], delta).items():
        if end:
            found.setdefault(end, epsilon)
    return list(found.items())


def _rung(
    texts: FlaggedTexts,
    exits: Exits,
    rule: DecisionRule,
    epsilons: Mapping[Loss, float],
    delta: float,
    repeats: Repeats,
) -> Rung:
    certificates = []
    for loss, epsilon in epsilons.items():
        lost = texts.lost(loss, exits)
        found = Certificate(
            loss=loss,
            epsilon=epsilon,
            delta=delta,
            n=len(lost),
            observed=float(lost.mean()),
            repeats=repeats,
        )
        certificates.append(found)
    same = texts.recorded.same()[exits, np.arange(len(exits))]
    num_exits = len(texts.recorded.traits.exits)
    return Rung(
        rule=rule,
        exit_shares=tuple((np.bincount(exits, minlength=num_exits) / len(exits)).tolist()),
        disagreement=float(1 - same.mean()),
        certificates=tuple(certificates),
    )
