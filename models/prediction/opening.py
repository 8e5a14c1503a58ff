"""From a bundle, a model folder or a checkpoint to what `offramp predict` runs."""

from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from models.checkpoints import LoadedCheckpoint, load
from models.data.notes import note
from models.errors import TrainingFailed
from models.model_folder import read_policy
from models.prediction.torch_runner import TorchRunner
from models.quality.costs import ModuleFlops, module_flops
from models.quality.model import fitting_original
from models.quality.source import BundleSource, Source, TorchSource
from serve.bundle.loader import MANIFEST, Bundle, load_bundle
from serve.classifier.score_map import ScoreMap
from serve.classifier.small_exits import OpenSmall, open_small
from serve.classifier.table_exit import TableExit
from serve.classifier.variant import serve_ladder, variant_shape
from serve.engine.runner import ModelRunner
from serve.engine.shape import ModelShape
from serve.policy.applied import AppliedPolicy
from serve.policy.document import ExitChoice
from serve.policy.resolution import ChosenExit
from serve.policy.target import TargetChoice
from serve.rules import CompiledRule, NeverRule
from serve.runtime.hardware import available_threads
from serve.runtime.placement import build_runner, place
from serve.tokenization.word_spans import WordSpanFinder

_NO_TARGETS = (
    "targets need certified rules, and only bundles have them: use the bundle that `offramp "
    "export` and `offramp calibrate` make of the model, or a rule"
)
# Lengths that the counter runs, or what a model takes of them.
COUNTED = (8, 16, 32)


@dataclass(frozen=True)
class OpenModel:
    """A model that texts can be run through.

    Attributes:
        source: reads texts.
        runner: runs tokens.
        shape: what the engine must know of the model.
        rule: when texts leave.
        width: of the hidden states.
        identity: the hash of what answers.
        table: answers before the first layer; None if the model has no table.
        small: the small model in front; None without one.
        scores: maps the scores of early exits to full depth's.
        flops: of its modules; None where they are not at hand.
    """

    source: Source
    runner: ModelRunner
    shape: ModelShape
    rule: CompiledRule
    width: int
    identity: str
    table: TableExit | None
    small: OpenSmall | None
    scores: ScoreMap
    flops: ModuleFlops | None

    @property
    def words(self) -> WordSpanFinder:
        """Finds the words of texts, for taggers."""
        return WordSpanFinder(Tokenizer.from_file(str(self.source.tokenizer_path)))


def open_model(
    folder: Path, exit_: ExitChoice | None, precision: str = "auto", original: Path | None = None
) -> OpenModel:
    """Load a model, and resolve what a request would say in `exit` as the server does.

    Args:
        folder: a bundle, a model folder or a checkpoint of any format.
        exit_: a rule, a target, or a profile's name; None for the policy's default.
        precision: of a bundle.
        original: the model that the bundle was exported from, to count operations.

    Raises:
        OfframpError: the folder holds nothing that can be run, or the choice cannot be followed.
    """
    if (folder / MANIFEST).is_file():
        return _of_bundle(load_bundle(folder), exit_, precision, original)
    if precision not in ("auto", "fp32"):
        raise TrainingFailed(f"--precision {precision} is for bundles; checkpoints run in fp32")
    if original:
        raise TrainingFailed("--model is for bundles; of a checkpoint operations are counted")
    return _of_checkpoint(folder, load(folder), exit_)


def _of_bundle(
    bundle: Bundle, exit_: ExitChoice | None, precision: str, original: Path | None
) -> OpenModel:
    placement = place(bundle, "auto", precision)
    if original and bundle.small:
        raise TrainingFailed(
            "--model: operations of a small model in front are not counted; leave --model out"
        )
    loaded = fitting_original(bundle, original) if original else None
    runner = build_runner(bundle, placement, available_threads())
    shape = variant_shape(bundle, placement.precision)
    small = open_small(bundle, placement, available_threads())
    ladder = serve_ladder(bundle, placement.precision, runner, shape, small)
    chosen = AppliedPolicy(bundle.manifest.policy, ladder).exit_for(exit_)
    _tell(chosen)
    source = BundleSource(bundle, placement, chosen.settings.special_tokens == "text")
    return OpenModel(
        source=source,
        runner=runner,
        shape=shape,
        rule=chosen.rule,
        width=bundle.manifest.width,
        identity=f"{bundle.sha256} {placement.precision}",
        table=TableExit(source.table, shape.traits) if source.table else None,
        small=small,
        scores=ScoreMap.of(shape.traits),
        flops=_flops(loaded) if loaded else None,
    )


def _of_checkpoint(folder: Path, loaded: LoadedCheckpoint, exit_: ExitChoice | None) -> OpenModel:
    model, policy = loaded.model, read_policy(folder) or loaded.policy
    source = TorchSource(model, loaded.tokenizer, loaded.max_tokens)
    shape = ModelShape(source.traits, source.temperatures, source.pad_id)
    wish = policy.wish_for(exit_)
    if isinstance(wish, TargetChoice):
        if exit_ is not None:
            raise TrainingFailed(f"--exit asks for a target; {_NO_TARGETS}")
        note(f"all texts run all layers, for the policy's default is a target; {_NO_TARGETS}")
        wish = NeverRule()
    return OpenModel(
        source=source,
        runner=TorchRunner(model),
        shape=shape,
        rule=shape.compile(policy.limits.applied_to(wish)),
        width=model.config.hidden_size,
        identity=source.sha256,
        table=None,
        small=None,
        scores=ScoreMap(None),
        flops=_flops(loaded),
    )


def _flops(loaded: LoadedCheckpoint) -> ModuleFlops:
    return module_flops(loaded.model, [min(n, loaded.max_tokens) for n in COUNTED])


def _tell(chosen: ChosenExit) -> None:
    """Tell what a request would be told, or an operator."""
    if chosen.problem:
        note(chosen.problem)
    elif chosen.resolution and chosen.resolution.note:
        note(chosen.resolution.note)
    if chosen.settings.windows:
        note("the profile's windows are not used: longer texts are cut")
