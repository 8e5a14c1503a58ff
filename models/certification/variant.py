"""The ladder of one variant: one precision with some exits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from rich.console import Console

from models.certification.decisions import CertifiedFlag, certify_flag
from models.certification.losses import Scale, TextLosses, scale_of, text_losses
from models.certification.path_choice import Terms, choose_path
from models.certification.paths import Path, candidate_paths
from models.certification.replay import Replay
from models.certification.rungs import Certified, certify, rungs
from models.certification.score_temperatures import fit_score_temperatures
from models.certification.temperatures import fit_temperatures
from models.certification.texts import LabelledText
from models.progress import progress
from models.quality.recorded import Recorded, recorded
from models.quality.reference import ReferenceAnswers
from models.quality.source import BundleSource
from serve.classifier.score_map import ScoreMap
from serve.policy.ladder import Data, Ladder, ScoreTemperatures
from serve.tokenization.tokenizer import Text


class Sample(NamedTuple):
    """The texts of a calibration, as all its variants use them.

    Attributes:
        texts: those that tune, then those that certify; with labels all of them or none.
        num_tuning: how many tune.
        data: the files they come from.
        reference: what another classifier says of those that certify; None without one.
    """

    texts: Sequence[LabelledText]
    num_tuning: int
    data: tuple[Data, ...]
    reference: ReferenceAnswers | None = None

    @property
    def num_certifying(self) -> int:
        """How many texts certify."""
        return len(self.texts) - self.num_tuning

    @property
    def certifying(self) -> list[Text]:
        """The texts that certify."""
        return [each.text for each in self.texts[self.num_tuning :]]


@dataclass(frozen=True)
class VariantLadder:
    """A ladder, and all that was found out for it.

    Attributes:
        ladder: as it is stored.
        certified: what was found out of the path.
        sides: the recorded texts.
        decided: what was found out of a flag; None if none was asked for.
    """

    ladder: Ladder
    certified: Certified
    sides: "Sides"
    decided: CertifiedFlag | None = None

    def deciding(self, flag: Mapping[str, float] | None) -> "VariantLadder":
        """Certify what a flag decides, too, if there is one."""
        if flag is None:
            return self
        tuning, certifying = (
            replace(r, traits=replace(r.traits, score_temperatures=self.ladder.score_temperatures))
            for r in (self.sides.tuning, self.sides.certifying)
        )
        decided = certify_flag(tuning, certifying, flag, self.certified.terms.delta)
        ladder = self.ladder.model_copy(update={"decisions": (decided.decisions,)})
        return replace(self, ladder=ladder, decided=decided)


class Sides(NamedTuple):
    """Recorded texts that choose a path, and others that certify it.

    Attributes:
        tuning: texts that choose.
        certifying: texts that certify.
        scale: of a regression; the tuning texts have chosen it.
    """

    tuning: Recorded
    certifying: Recorded
    scale: Scale | None

    def fitted_scores(self, path: Path) -> ScoreTemperatures | None:
        """Return the temperatures of scores for a path; None for a regression."""
        replay = Replay.of(path, self.tuning, text_losses(self.tuning, self.scale))
        return fit_score_temperatures(self.tuning, replay)

    def certifying_losses(
        self, scores: ScoreTemperatures | None = None, reference: ReferenceAnswers | None = None
    ) -> TextLosses:
        """Return what leaving early costs the texts that certify."""
        shown = ScoreMap(scores) if scores else None
        return text_losses(self.certifying, self.scale, shown, reference)


def certify_variant(
    source: BundleSource, sample: Sample, terms: Terms, tolerance: float | None, console: Console
) -> VariantLadder:
    """Record a variant, choose its path on the tuning texts, and certify it on the others.

    Args:
        source: a bundle with the exits that are to be active.
        sample: the texts.
        terms: of the certificates.
        tolerance: of a regression: values further apart disagree; None for the default.
        console: for progress.
    """
    sides = record_sides(source, sample, tolerance, console)
    path = find_path(sides, terms)
    scores = sides.fitted_scores(path)
    losses = sides.certifying_losses(scores, sample.reference)
    certified = certify(Replay.of(path, sides.certifying, losses), terms)
    manifest, precision = source.bundle.manifest, source.placement.precision
    ladder = Ladder(
        precision=precision,
        weights=manifest.files[manifest.variants[precision].weights],
        exits=manifest.exit_layers,
        temperatures=path.temperatures,
        score_temperatures=scores,
        data=sample.data,
        num_tuning=sample.num_tuning,
        num_certifying=sample.num_certifying,
        mean_tokens=float(sides.certifying.num_tokens.mean()),
        metric=losses.metric,
        tolerance=losses.tolerance,
        rungs=rungs(certified),
        reference=sample.reference.reference if sample.reference else None,
    )
    return VariantLadder(ladder, certified, sides)


def record_sides(
    source: BundleSource, sample: Sample, tolerance: float | None, console: Console
) -> Sides:
    """Run the texts through all active exits."""
    texts = [each.text for each in sample.texts]
    labels = [each.label for each in sample.texts if each.label is not None]
    title = f"{source.bundle.name} {source.placement.precision}: running texts"
    with progress(console, title, len(texts)) as advance:
        found = recorded(source, texts, labels or None, advance)
    tuning = found.of(slice(sample.num_tuning))
    scale = scale_of(tuning, tolerance) if found.traits.task == "regression" else None
    return Sides(tuning, found.of(slice(sample.num_tuning, None)), scale)


def find_path(sides: Sides, terms: Terms) -> Path:
    """Return the path to certify, with temperatures fitted on the tuning texts."""
    tuning, spread = sides.tuning, 0.0
    if tuning.traits.task == "regression":
        spread = float(np.nanstd(tuning.logits[-1]))
    paths = candidate_paths(tuning.traits, fit_temperatures(tuning), spread)
    return choose_path(paths, tuning, text_losses(tuning, sides.scale), terms)
