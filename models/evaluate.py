"""What a multi-exit model is worth: accuracy per exit, and what exit rules cost and save."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from models.batches import collate, sorted_batches
from models.encoding import EncodedRow
from models.multi_exit import MultiExitModel
from serve.calibration import Data, ExitFigures, OperatingPoint, VariantCalibration
from serve.policy import Policy
from serve.recording import exits_taken
from serve.rules import EntropyRule, ExitRule, NeverRule, PatienceRule
from serve.traits import Traits

BATCH_SIZE = 64
# Every candidate is tried when thresholds are chosen; every fifth is published.
THRESHOLD_STEP = 0.01
PUBLISHED_EVERY = 5
# How much accuracy, of 1, a profile may give away against the last exit.
PROFILES = {"balanced": 0.005, "fast": 0.02}


class Outcome(NamedTuple):
    """All exits' logits on a data set.

    Attributes:
        logits: (exits, rows, labels), float32.
        gold: (rows,) the right labels.
        exits: exit layers, ascending.
    """

    logits: NDArray[np.float32]
    gold: NDArray[np.int64]
    exits: tuple[int, ...]

    @property
    def traits(self) -> Traits:
        """The model as its exit rules see it."""
        return Traits(self.exits, tuple(map(str, range(self.logits.shape[-1]))))


def run_model(model: MultiExitModel, rows: Sequence[EncodedRow]) -> Outcome:
    """Run every row through all exits; the model comes back in the mode it was in."""
    logits = np.empty((len(model.exits), len(rows), len(model.labels)), np.float32)
    was_training = model.training
    device = next(model.parameters()).device
    model.eval()
    for chosen in sorted_batches([len(row.ids) for row in rows], BATCH_SIZE):
        batch = collate([rows[i] for i in chosen], model.config.pad_token_id or 0).to(device)
        with torch.inference_mode():
            found = model(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        logits[:, chosen] = torch.stack(found).float().cpu().numpy()
    model.train(was_training)
    return Outcome(logits, np.array([row.label for row in rows]), model.exits)


def exit_figures(outcome: Outcome) -> tuple[ExitFigures, ...]:
    """Return the accuracy of every exit when it answers all rows."""
    right = outcome.logits.argmax(-1) == outcome.gold
    return tuple(
        ExitFigures(layer=layer, accuracy=float(share))
        for layer, share in zip(outcome.exits, right.mean(axis=1), strict=True)
    )


def operating_point(outcome: Outcome, rule: ExitRule) -> OperatingPoint:
    """Return what a rule gives on the data, judged as the server judges."""
    exits = exits_taken(outcome.logits, rule, outcome.traits, (1.0,) * len(outcome.exits))
    labels = outcome.logits.argmax(-1)
    answers = labels[exits, np.arange(len(exits))]
    return OperatingPoint(
        rule=rule,
        accuracy=float((answers == outcome.gold).mean()),
        agreement=float((answers == labels[-1]).mean()),
        mean_exit_layer=float(np.array(outcome.exits)[exits].mean()),
    )


def choose_policy(outcome: Outcome) -> Policy:
    """Return the policy with profiles `exact`, `balanced` (the default) and `fast`.

    A profile's entropy threshold is the loosest one whose accuracy stays within the
    profile's allowance (`PROFILES`) of the last exit's. It is chosen on this very data,
    so its figures flatter it slightly.
    """
    floor = exit_figures(outcome)[-1].accuracy
    tried = [operating_point(outcome, rule) for rule in _entropy_rules(outcome)]
    profiles: dict[str, ExitRule] = {"exact": NeverRule()}
    for name, allowance in PROFILES.items():
        # Threshold 0 never leaves early, so there is always one.
        kept = [p.rule for p in tried if p.accuracy >= floor - allowance - 1e-9]
        profiles[name] = kept[-1]
    return Policy(default="balanced", profiles=profiles)


def calibrate(outcome: Outcome, data: Data, policy: Policy) -> VariantCalibration:
    """Return the figures to publish: exits, entropy thresholds, the profiles', patience."""
    chosen = {r.threshold for r in policy.profiles.values() if isinstance(r, EntropyRule)}
    entropy_rules = [
        rule
        for step, rule in enumerate(_entropy_rules(outcome))
        if step % PUBLISHED_EVERY == 0 or rule.threshold in chosen
    ]
    patience_rules = [PatienceRule(patience=n) for n in range(1, len(outcome.exits) - 1)]
    rules: Iterable[ExitRule] = [*entropy_rules, *patience_rules]
    return VariantCalibration(
        data=data,
        exits=exit_figures(outcome),
        operating_points=tuple(operating_point(outcome, rule) for rule in rules),
    )


def _entropy_rules(outcome: Outcome) -> list[EntropyRule]:
    """Entropy rules from threshold 0 to ln(labels), tight to loose."""
    ceiling = math.log(outcome.logits.shape[-1])
    steps = range(math.floor(ceiling / THRESHOLD_STEP) + 1)
    return [EntropyRule(threshold=round(step * THRESHOLD_STEP, 2)) for step in steps]
