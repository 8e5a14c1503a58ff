"""The ladder of one variant: one precision with some exits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from models.certification.losses import scale_of, text_losses
from models.certification.observed import Observed, Replay
from models.certification.path_choice import Terms, choose_path
from models.certification.paths import Path, candidate_paths
from models.certification.rungs import Certified, certify, rungs
from models.certification.temperatures import fit_temperatures
from models.certification.texts import LabelledText
from models.evaluation.bundle_recording import record
from models.progress import progress
from serve.bundle.loader import Bundle
from serve.policy.ladder import Data, Ladder
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
    data: tuple[Data, ...]

    @property
    def num_certifying(self) -> int:
        """How many texts certify."""
        return len(self.texts) - self.num_tuning

    @property
    def tuning_rows(self) -> NDArray[np.intp]:
        """The places of the texts that tune."""
        return np.arange(self.num_tuning)

    @property
    def certifying_rows(self) -> NDArray[np.intp]:
        """The places of the texts that certify."""
        return np.arange(self.num_tuning, len(self.texts))


class Asked(NamedTuple):
    """How to certify.

    Attributes:
        delta: probability that a bound does not hold.
        tolerance: of a regression: values further apart disagree; None for the default.
    """

    delta: float = 0.05
    tolerance: float | None = None


@dataclass(frozen=True)
class VariantLadder:
    """A ladder, and all that was found out for it."""

    ladder: Ladder
    certified: Certified


def certify_variant(
    bundle: Bundle, placement: Placement, sample: Sample, asked: Asked, console: Console
) -> VariantLadder:
    """Record a variant, choose its path on the tuning texts, and certify it on the others.

    Args:
        bundle: with the exits that are to be active.
        placement: the device, and the precision.
        sample: the texts.
        asked: how to certify.
        console: for progress.
    """
    observed = observe(bundle, placement, sample, asked.tolerance, console)
    terms = Terms(sample.num_certifying, asked.delta)
    path = find_path(observed.of(sample.tuning_rows), terms)
    certifying = observed.of(sample.certifying_rows)
    certified = certify(Replay.of(path, certifying), terms)
    ladder = Ladder(
        precision=placement.precision,
        weights=bundle.manifest.files[bundle.manifest.variants[placement.precision].weights],
        exits=observed.traits.exits,
        temperatures=path.temperatures,
        data=sample.data,
        num_tuning=sample.num_tuning,
        num_certifying=sample.num_certifying,
        mean_tokens=float(certifying.recording.num_tokens.mean()),
        metric=observed.losses.metric,
        tolerance=observed.losses.tolerance,
        rungs=rungs(certified),
    )
    return VariantLadder(ladder, certified)


def observe(
    bundle: Bundle,
    placement: Placement,
    sample: Sample,
    tolerance: float | None,
    console: Console,
) -> Observed:
    """Run the texts through all active exits, and return them with their losses."""
    title = f"{bundle.name} {placement.precision}: running texts"
    with progress(console, title, len(sample.texts)) as advance:
        recording = record(bundle, placement, sample.tokens, advance)
    scale = None
    if bundle.manifest.task == "regression":
        tuning = recording.of(sample.tuning_rows)
        scale = scale_of(tuning.logits[-1, :, 0], sample.texts[: sample.num_tuning], tolerance)
    losses = text_losses(bundle, recording, sample.tokens, sample.texts, scale)
    return Observed(recording, losses, bundle.manifest.traits)


def find_path(tuning: Observed, terms: Terms) -> Path:
    """Return the path to certify, with temperatures fitted on the tuning texts."""
    spread = 0.0
    if tuning.traits.task == "regression":
        spread = float(np.nanstd(tuning.recording.logits[-1]))
    temperatures = fit_temperatures(tuning.recording, tuning.traits)
    return choose_path(candidate_paths(tuning.traits, temperatures, spread), tuning, terms)
