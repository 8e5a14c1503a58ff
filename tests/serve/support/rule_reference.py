"""The exit rules once more: one row at a time, in plain Python, straight from docs/rules.md.

Shares no code with `serve`. Numbers are Python's doubles, so a signal that lies within float32's
rounding of what it is compared with may fall on the other side: `Step.doubtful` says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from serve.rules import ExitRule
from serve.rules.traits import Traits

Numbers = list[float]
_NEAR = 2e-5


@dataclass
class Step:
    """What a row's rule says at one exit.

    Attributes:
        reason: as in JSON; `stays`.
        signal: NaN for none.
        p: the probabilities it would leave with; of a regression the value; None for none.
        head: whose head gave them, counted from 0.
        label: a label that was voted for; else -1.
        doubtful: whether rounding may decide otherwise, here or before.
    """

    reason: str
    signal: float
    p: Any
    head: int
    label: int
    doubtful: bool


@dataclass
class Follower:
    """One row and its rule, on its way through the exits."""

    rule: ExitRule
    traits: Traits
    streak: int = 0
    before: Any = None
    votes: dict[int, float] = field(default_factory=dict)
    best: tuple[float, int, Any] | None = None
    heads: list[Any] = field(default_factory=list)
    doubtful: bool = False

    def step(
        self, logits: Any, exit_index: int, temperature: float, uncertainty: float, counted: Any
    ) -> Step:
        """Judge the row at an exit.

        Args:
            logits: (labels,) lists; of tokens (tokens, labels), the row's own only.
            exit_index: counted from 0.
            temperature: of the exit.
            uncertainty: of the head.
            counted: (tokens,) booleans, or None.
        """
        rule, exits = self.rule, self.traits.exits
        first, last = bounds(rule, exits)
        self.own = readable(self.traits.task, logits, counted)
        self.logits, self.counted = logits, counted
        self.index, self.temperature, self.uncertainty = exit_index, temperature, uncertainty
        self.head, self.label, self.mean = exit_index, -1, None
        confident, signal = getattr(self, f"_{rule.rule}")()
        confident = confident and first <= exit_index <= last
        if rule.rule == "confidence" and rule.fallback == "most_confident" and not confident:
            self._fall_back()
        reason = "stays"
        if exit_index == len(exits) - 1:
            reason = "final"
        elif confident:
            reason = REASONS.get(rule.rule, "confident")
        elif exit_index == last:
            reason = "max_layer"
        return Step(reason, signal, self._answer(), self.head, self.label, self.doubtful)

    def _answer(self) -> Any:
        if self.mean is not None:
            return self.mean
        logits = self.best[2] if self.head != self.index and self.best else self.logits
        return probabilities(self.traits.task, logits)

    def _threshold(self) -> float:
        threshold = self.rule.threshold
        return threshold[self.index] if isinstance(threshold, tuple) else threshold

    def _compare(self, signal: float, below: bool, at: bool = False) -> bool:
        threshold = self._threshold()
        if math.isnan(signal):
            return False
        self._doubt(signal, threshold)
        if at and signal == threshold:
            return True
        return signal < threshold if below else signal > threshold

    def _doubt(self, a: float, b: float) -> None:
        self.doubtful = self.doubtful or (abs(a - b) < _NEAR and not a == b == 0)

    def _read(self, of_part: Any, doubt_is_high: bool) -> float:
        """Return the row's signal; NaN if it has none."""
        parts = distributions(self.traits.task, self.own)
        if self.own is None or parts is None:
            return math.nan
        return reduce(self.rule, self.traits.task, [of_part(p) for p in parts], doubt_is_high)

    def _shown(self, signal: float) -> float:
        return 0.0 if self.counted is not None and not any(self.counted) else signal

    def _entropy(self) -> tuple[bool, float]:
        signal = self._read(entropy, True)
        return self._compare(signal, below=True), self._shown(signal)

    def _normalized(self) -> float:
        return self._read(lambda p: entropy(p) / math.log(len(p)), True)

    def _normalized_entropy(self) -> tuple[bool, float]:
        signal = self._normalized()
        return self._compare(signal, below=True), self._shown(signal)

    def _margin(self) -> tuple[bool, float]:
        signal = self._read(lambda p: sorted(p)[-1] - sorted(p)[-2], False)
        return self._compare(signal, below=False), self._shown(signal)

    def _confidence(self) -> tuple[bool, float]:
        self.own = scaled(self.own, self.temperature)
        signal = self._read(max, False)
        known = not math.isnan(signal)
        if known and bounds(self.rule, self.traits.exits)[0] <= self.index:
            if self.best is not None and self.best[2] != self.logits:
                self._doubt(signal, self.best[0])
            if self.best is None or signal > self.best[0]:
                self.best = signal, self.index, self.logits
        return self._compare(signal, below=False, at=True), self._shown(signal)

    def _fall_back(self) -> None:
        if self.best is not None:
            self.head = self.best[1]

    def _learned(self) -> tuple[bool, float]:
        return self._compare(self.uncertainty, below=True), self.uncertainty

    def _classes(self) -> tuple[bool, float]:
        if self.own is None:
            return False, math.nan
        p = softmax(self.own)
        leading = self.own.index(max(self.own))
        threshold = self.rule.thresholds.get(self.traits.labels[leading])
        if threshold is None:
            return False, p[leading]
        self._doubt(p[leading], threshold)
        return p[leading] > threshold, p[leading]

    def _decision(self) -> tuple[bool, float]:
        above, below = self.rule.leave_above or {}, self.rule.leave_below or {}
        if self.own is None:
            return False, self._shown(math.nan)
        high, low = flag_scores(self.traits, self.own)
        for scores, bounds_ in ((high, above), (low, below)):
            for label, bound in bounds_.items():
                self._doubt(scores[label], bound)
        is_high = any(high[label] >= bound for label, bound in above.items())
        is_low = bool(below) and all(low[label] <= bound for label, bound in below.items())
        return is_high or is_low, max(low[label] for label in {**above, **below})

    def _patience(self) -> tuple[bool, float]:
        now = decided(self.traits.task, self.own)
        agrees = now is not None and self.before is not None
        if agrees and self.traits.task == "regression":
            self._doubt(abs(now - self.before), self.rule.tolerance)
            agrees = abs(now - self.before) < self.rule.tolerance
        elif agrees:
            agrees = now == self.before
        self.before = now
        self.streak = self.streak + 1 if agrees else 0
        return self.streak >= self.rule.patience, self.streak

    def _confident_patience(self) -> tuple[bool, float]:
        signal = self._normalized()
        confident = self._compare(signal, below=True)
        self.streak = self.streak + 1 if confident else 0
        known = not math.isnan(signal)
        if not confident and self.rule.ensemble == "run":
            self.heads = []
        if known:
            self.heads.append(probabilities(self.traits.task, self.logits))
        if self.heads and self.rule.ensemble != "none":
            self.mean = mean(self.heads)
        return self.streak >= self.rule.patience, self.streak

    def _voting(self) -> tuple[bool, float]:
        rule, weights = self.rule, self.rule.weights or [1.0] * len(self.traits.exits)
        if self.own is not None:
            label = self.own.index(max(self.own))
            self.votes[label] = self.votes.get(label, 0.0) + weights[self.index]
        most = max(self.votes.values(), default=0.0)
        leaders = [label for label in range(len(self.traits.labels))
                   if self.votes.get(label, 0.0) == most]  # fmt: skip
        self.label = leaders[0] if len(leaders) == 1 else -1
        if rule.votes is not None:
            signal, enough = most, most >= rule.votes
        else:
            signal = most / (self.index + 1) ** rule.exponent
            enough = signal >= rule.share
        return enough and self.label >= 0 and self.own is not None, signal

    def _layer(self) -> tuple[bool, float]:
        return self.traits.exits[self.index] == self.rule.layer, math.nan

    def _never(self) -> tuple[bool, float]:
        return False, math.nan


REASONS = {"patience": "patience", "confident_patience": "patience", "voting": "votes",
           "layer": "layer"}  # fmt: skip


def bounds(rule: ExitRule, exits: Sequence[int]) -> tuple[int, int]:
    """Return the first and the last exit, counted from 0, at which a row may leave."""
    if rule.rule == "layer":
        return exits.index(rule.layer), exits.index(rule.layer)
    low, high = rule.min_layer or 1, rule.max_layer or exits[-1]
    inside = [i for i, layer in enumerate(exits) if low <= layer <= high]
    return inside[0], inside[-1]


def readable(task: str, logits: Any, counted: Any) -> Any:
    """Return the logits that a rule looks at; None if they say nothing."""
    if task == "token":
        own = [row for row, counts in zip(logits, counted, strict=True) if counts]
        return own if own and all(_sane(row) for row in own) else None
    if task == "multi_label":
        return None if any(map(math.isnan, logits)) else logits
    if task == "regression":
        return logits if math.isfinite(logits[0]) else None
    return logits if _sane(logits) else None


def _sane(logits: Numbers) -> bool:
    return not any(map(math.isnan, logits)) and math.isfinite(max(logits))


def scaled(own: Any, temperature: float) -> Any:
    """Return logits at a temperature."""
    if own is None:
        return None
    if isinstance(own[0], list):
        return [[x / temperature for x in row] for row in own]
    return [x / temperature for x in own]


def softmax(logits: Numbers) -> Numbers:
    """Return probabilities."""
    e = [math.exp(x - max(logits)) for x in logits]
    return [x / sum(e) for x in e]


def sigmoid(x: float) -> float:
    """Return a label's probability."""
    if x < -700:
        return 0.0
    return 1.0 if x > 700 else 1 / (1 + math.exp(-x))


def flag_scores(traits: Traits, own: Any) -> tuple[dict[str, float], dict[str, float]]:
    """Return by label the highest score that can flag, and the highest of any part."""
    if traits.task != "token":
        p = softmax(own) if traits.task == "single_label" else [sigmoid(x) for x in own]
        scores = dict(zip(traits.labels, p, strict=True))
        return scores, scores
    bare = [label.removeprefix("B-").removeprefix("I-") for label in traits.labels]
    high, low = dict.fromkeys(bare, 0.0), dict.fromkeys(bare, 0.0)
    entities: list[tuple[str, Numbers]] = []
    for row in own:
        p, best = softmax(row), row.index(max(row))
        for kind, x in zip(bare, p, strict=True):
            low[kind] = max(low[kind], x)
        if not entities or bare[best] != entities[-1][0] or traits.labels[best][:2] == "B-":
            entities.append((bare[best], []))
        entities[-1][1].append(p[best])
    for kind, scores in entities:
        high[kind] = max(high[kind], math.fsum(scores) / len(scores))
    return high, low


def entropy(p: Numbers) -> float:
    """Return nats."""
    return -math.fsum(x * math.log(x) for x in p if x > 0)


def distributions(task: str, own: Any) -> list[Numbers] | None:
    """Return the probabilities of each part."""
    if own is None:
        return None
    if task == "token":
        return [softmax(row) for row in own]
    if task == "multi_label":
        return [[sigmoid(x), sigmoid(-x)] for x in own]
    return [softmax(own)]


def reduce(rule: ExitRule, task: str, signals: Numbers, doubt_is_high: bool) -> float:
    """Return one signal of several."""
    if task == "single_label":
        return signals[0]
    how = rule.reduce or ("mean" if task == "token" else "max")
    if how == "mean":
        return math.fsum(signals) / len(signals)
    surest_first = sorted(signals, reverse=not doubt_is_high)
    if how == "max":
        return surest_first[-1]
    as_sure = math.ceil(Fraction(str(rule.quantile)) * len(signals))
    return surest_first[as_sure - 1]


def decided(task: str, own: Any) -> Any:
    """Return what agrees or does not."""
    if own is None:
        return None
    if task == "regression":
        return own[0]
    if task == "multi_label":
        return [x > 0 for x in own]
    if task == "token":
        return [row.index(max(row)) for row in own]
    return own.index(max(own))


def probabilities(task: str, logits: Any) -> Any:
    """Return what an answer's scores are; None if the logits say nothing."""
    if task == "token":
        return [softmax(row) if _sane(row) else None for row in logits]
    if task == "multi_label":
        return [math.nan if math.isnan(x) else sigmoid(x) for x in logits]
    if task == "regression":
        return logits
    return softmax(logits) if _sane(logits) else None


def mean(heads: list[Any]) -> Any:
    """Return the mean of several heads' probabilities; None where one has none."""
    if None in heads:
        return None
    if isinstance(heads[0], list):
        return [mean(list(parts)) for parts in zip(*heads, strict=True)]
    return math.fsum(heads) / len(heads)
