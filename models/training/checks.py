"""What `offramp train` refuses before it reads the data."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile

from pydantic import BaseModel

from models.encoders.families import read_config
from models.errors import TrainingFailed
from models.heads import AttentionHeadConfig
from models.multi_exit import check_exits
from models.training.diversity import CROSS_ENTROPIES
from models.training.error_targets import ERROR_TARGETS
from models.training.job import FROZEN, ModelChoice
from serve.rules.traits import Traits

# These recipes train the earlier exits on layers that stay as they are.
_ON_FROZEN_LAYERS = ("two-stage", FROZEN)


def check_choice(choice: ModelChoice) -> None:
    """Raise TrainingFailed if options exclude each other, or exits are not the encoder's."""
    if choice.layers or choice.exits:
        _check_layers(choice, read_config(choice.encoder).num_hidden_layers)
    if choice.layers and choice.frozen:
        raise TrainingFailed(
            f"--layers: recipe {FROZEN} leaves a classifier's answers as they are, and a cut "
            "encoder has none; leave --layers out, or take another recipe"
        )
    _check_objective(choice)


def check_fit(choice: ModelChoice, traits: Traits) -> None:
    """Raise TrainingFailed if options do not fit the model's task or its number of exits."""
    if choice.objective.learn_error and traits.task not in ERROR_TARGETS:
        raise TrainingFailed(
            "--learn-error is for whole texts: an exit estimates one error for a text, and a "
            "tagger gives every token an answer; leave it out"
        )
    if choice.objective.diversity and traits.task not in CROSS_ENTROPIES:
        raise TrainingFailed(
            "--diversity is for answers that are labels of a whole text, whose probabilities may "
            f"be unlike; the task is {traits.task}; leave it out"
        )
    if len(traits.exits) == 1 and (what := _of_earlier_exits(choice)):
        raise TrainingFailed(
            f"{what} is about exits before the last, and the model has one exit only; name more by "
            "--exits, or leave it out"
        )


def _check_objective(choice: ModelChoice) -> None:
    """Refuse options about what exits learn that exclude each other, or the recipe."""
    objective, recipe = choice.objective, f"recipe {choice.recipe}"
    if not choice.teacher and (what := _changed(choice, "teacher_weight", "temperature")):
        raise TrainingFailed(
            f"{what} is about learning from a teacher; name one by --teacher, or leave it out"
        )
    if objective.exit_weights and choice.recipe in _ON_FROZEN_LAYERS:
        raise TrainingFailed(
            f"--exit-weights: {recipe} trains the earlier exits apart from each other, so that "
            "weights would change nothing; leave them out, or take another recipe"
        )
    if objective.diversity and choice.frozen:
        raise TrainingFailed(
            f"--diversity: {recipe} teaches the exits to answer as the classifier does, not "
            "unlike each other; leave it out, or take another recipe"
        )
    if objective.unlabelled and not (choice.frozen or choice.teacher):
        raise TrainingFailed(
            f"--unlabelled: {recipe} learns from labels; name a classifier whose answers stand for "
            f"them by --teacher, or take --recipe {FROZEN}, whose exits learn from --classifier"
        )
    if choice.taught and choice.frozen:
        raise TrainingFailed(
            "--unlabelled: without labels --classifier teaches; leave --teacher out"
        )
    if objective.learn_error and isinstance(choice.head, AttentionHeadConfig):
        raise TrainingFailed(
            "--learn-error is for pooled heads, which have the features to estimate an error from; "
            "leave --head attention out"
        )


def check_out(out: Path, read: Mapping[str, Path | None]) -> None:
    """Fail before the training, not after it, if the model folder cannot be written.

    Args:
        out: the folder, which is made.
        read: folders that the run reads, by what they are.
    """
    for owner, folder in read.items():
        if folder and out.resolve() == folder.resolve():
            raise TrainingFailed(
                f"--out {out}: is the {owner}'s folder, which would be overwritten; choose another "
                "one"
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise TrainingFailed(
            f"--out {out}: cannot be written ({error.strerror}); choose another folder"
        ) from error


def _check_layers(choice: ModelChoice, depth: int) -> None:
    if choice.layers and choice.layers > depth:
        raise TrainingFailed(f"--layers {choice.layers}: the encoder has {depth} layers")
    if choice.exits:
        try:
            check_exits(choice.exits, choice.layers or depth)
        except ValueError as error:
            raise TrainingFailed(f"--exits: {error}") from error


def _of_earlier_exits(choice: ModelChoice) -> str | None:
    """Return the option that has a meaning only where there are several exits."""
    if choice.recipe in _ON_FROZEN_LAYERS:
        return f"recipe {choice.recipe}"
    return _changed(choice.objective, "learn_error", "diversity", "exit_weights", "distill")


def _changed(settings: BaseModel, *names: str) -> str | None:
    """Return the first option of these that is not at its default."""
    fields = type(settings).model_fields
    changed = (name for name in names if getattr(settings, name) != fields[name].default)
    return next((f"--{name.replace('_', '-')}" for name in changed), None)
