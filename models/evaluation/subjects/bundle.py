"""A bundle in one precision, run as the server runs it."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from models.checkpoints import LoadedCheckpoint
from models.data.alignment import tag_tokens
from models.data.examples import Example, Word
from models.evaluation.bundle_recording import read_texts, record
from models.evaluation.costs import LAYERS, MFLOPS, MFLOPS_LINEAR, MS, Costs, layer_costs
from models.evaluation.exit_times import times_by_exit
from models.evaluation.flops import flops_by_exit, num_parameters
from models.evaluation.observation import Subject
from models.evaluation.predictions import Predictions, gold_of
from models.evaluation.subjects.measurable import Advance, Pass
from serve.bundle.loader import Bundle
from serve.rules.traits import Traits
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.length_bounds import Text

_NOT_COUNTED = (
    "a bundle holds graphs, not the modules that PyTorch's counter reads: name the model that it "
    "was exported from by --model"
)


class BundleVariant:
    """One precision of a bundle."""

    def __init__(
        self,
        bundle: Bundle,
        placement: Placement,
        name: str,
        model: LoadedCheckpoint | None = None,
    ) -> None:
        """Take a bundle that has been loaded.

        Args:
            bundle: with the exits that are to be measured.
            placement: device and precision.
            name: in the report.
            model: what the bundle was exported from, of which operations are counted.
        """
        self._bundle, self._placement, self._name, self._model = bundle, placement, name, model

    @cached_property
    def subject(self) -> Subject:
        """Name and origin."""
        manifest, model = self._bundle.manifest, self._model
        policy = manifest.policy
        uncounted = dict.fromkeys((MFLOPS, MFLOPS_LINEAR), _NOT_COUNTED)
        return Subject(
            name=self._name,
            origin="bundle",
            precision=self._placement.precision,
            trained_for=manifest.trained_for,
            profiles=policy.profile_wishes,
            limits=policy.limits,
            ladder=self._bundle.ladder(self._placement.precision),
            num_parameters=None if model is None else num_parameters(model.model),
            unknown={} if model else uncounted,
        )

    @property
    def traits(self) -> Traits:
        """The model as its exit rules see it."""
        return self._bundle.manifest.traits

    @property
    def temperatures(self) -> tuple[float, ...]:
        """One per exit, as served: those of the certified rules, where there are any."""
        return self._bundle.temperatures(self._placement.precision)

    def run(self, examples: Sequence[Example], advance: Advance) -> Pass:
        """Run texts through all exits by the served path; long texts are cut."""
        tokens = read_texts(self._bundle, [Text(e.text_a, e.text_b) for e in examples])
        recorded = record(self._bundle, self._placement, tokens, advance)
        width = int(recorded.num_tokens.max())
        gold = gold_of(self._labels(examples), width)
        predictions = Predictions(
            recorded.logits, gold, self.traits, recorded.counted, recorded.uncertainty
        )
        return Pass(predictions, recorded.num_tokens)

    def costs(self, num_tokens: NDArray[np.intp]) -> Costs:
        """Return layers, milliseconds on this machine, and operations if the model is at hand."""
        runner = build_runner(self._bundle, self._placement, available_threads())
        exits, limit = self.traits.exits, self._bundle.manifest.max_tokens
        costs = {
            LAYERS: layer_costs(exits, len(num_tokens)),
            MS: times_by_exit(runner, num_tokens, limit),
        }
        if self._model is None:
            return costs
        return costs | flops_by_exit(self._model.model, num_tokens, exits)

    def _labels(self, examples: Sequence[Example]) -> list[object]:
        """Return the correct answers; of taggers, each token's tag."""
        if self.traits.task != "token":
            return [example.label for example in examples]
        words: list[list[Word]] = [e.label if isinstance(e.label, list) else [] for e in examples]
        texts = [e.text_a for e in examples]
        path, limit = self._bundle.tokenizer_path, self._bundle.manifest.max_tokens
        return [t.tags for t in tag_tokens(path, zip(texts, words, strict=True), limit)]
