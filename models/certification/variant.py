"""The ladder of one variant: one precision with some exits."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from models.certification.losses import scale_of, text_losses
from models.certification.observed import Observed, Replay
from models.certification.path_choice import Terms, choose_path
from models.certification.paths import candidate_paths
from models.certification.rungs import Certified, certify, rungs
from models.certification.temperatures import fit_temperatures
from models.certification.texts import LabelledText
from models.evaluation.bundle_recording import record
from models.progress import progress
from serve.bundle.loader import Bundle
from serve.policy.ladder import CalibrationData, Ladder
from serve.runtime.placement import Placement
from serve.tokenization.tokenizer import Tokens


@dataclass(frozen=True)
class Sample:
    """The texts of a calibration, as all its variants use them.

    Attributes:
        texts: those that tune, then those that certify.
        tokens: of the same texts.
        num_tuning: how many tune.
        data: the files they come from.
    """

    texts: Sequence[LabelledText]
    tokens: Sequence[Tokens]
    num_tuning: int
    data: tuple[CalibrationData, ...]

    @property
    def num_certifying(self) -> int:
        """How many texts certify."""
        return len(self.texts) - self.num_tuning


@dataclass(frozen=True)
class VariantLadder:
    """A ladder, and all that was found out for it."""

    ladder: Ladder
    certified: Certified


def certify_variant(
    bundle: Bundle,
    placement: Placement,
    sample: Sample,
    delta: float,
    tolerance: float | None,
    console: Console,
) -> VariantLadder:
    """Record a variant, choose its path on the tuning texts, and certify it on the others.

    Args:
        bundle: with the exits that are to be active.
        placement: the device, and the precision.
        sample: the texts.
        delta: probability that a bound does not hold.
        tolerance: of a regression; None for the default.
        console: for progress.
    """
    title = f"{bundle.name} {placement.precision}"
    with progress(console, f"{title}: running texts", len(sample.texts)) as advance:
        recording = record(bundle, placement, sample.tokens, advance)
    rows = np.arange(len(sample.texts))
    tuning_rows, certifying_rows = rows[: sample.num_tuning], rows[sample.num_tuning :]
    full = recording.logits[-1]
    scale, spread = None, 0.0
    if bundle.manifest.task == "regression":
        values = full[tuning_rows, 0]
        scale = scale_of(values, [sample.texts[i] for i in tuning_rows], tolerance)
        spread = float(np.nanstd(values))
    losses = text_losses(bundle, recording, sample.tokens, sample.texts, scale)
    observed = Observed(recording, losses, bundle.manifest.traits)
    tuning = observed.of(tuning_rows)
    traits = bundle.manifest.traits
    terms = Terms(sample.num_certifying, delta)
    temperatures = fit_temperatures(tuning.recording, traits)
    path = choose_path(candidate_paths(traits, temperatures, spread), tuning, terms)
    certified = certify(Replay.of(path, observed.of(certifying_rows)), terms)
    weights = bundle.manifest.files[bundle.manifest.variants[placement.precision].weights]
    ladder = Ladder(
        precision=placement.precision,
        weights=weights,
        exits=traits.exits,
        temperatures=path.temperatures,
        data=sample.data,
        num_tuning=sample.num_tuning,
        num_certifying=sample.num_certifying,
        mean_tokens=float(recording.num_tokens[certifying_rows].mean()),
        metric=losses.metric,
        tolerance=None if scale is None else scale.tolerance,
        rungs=rungs(certified),
    )
    return VariantLadder(ladder, certified)
