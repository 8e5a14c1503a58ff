"""What `offramp train` refuses before it reads the data."""

from tempfile import TemporaryFile

from models.encoders.families import read_config
from models.errors import TrainingFailed
from models.multi_exit import check_exits
from models.training.error_targets import ERROR_TARGETS
from models.training.job import FROZEN, ModelChoice, TrainJob
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
    if choice.objective.exit_weights and choice.recipe in _ON_FROZEN_LAYERS:
        raise TrainingFailed(
            f"--exit-weights: recipe {choice.recipe} trains the earlier exits apart from each "
            "other, so that weights would change nothing; leave them out, or take another recipe"
        )


def check_fit(choice: ModelChoice, traits: Traits) -> None:
    """Raise TrainingFailed if options do not fit the model's task or its number of exits."""
    if choice.objective.learn_error and traits.task not in ERROR_TARGETS:
        raise TrainingFailed(
            "--learn-error is for whole texts: an exit estimates one error for a text, and a "
            "tagger gives every token an answer; leave it out"
        )
    if len(traits.exits) == 1 and (what := _of_earlier_exits(choice)):
        raise TrainingFailed(
            f"{what} is about exits before the last, and the model has one exit only; name more by "
            "--exits, or leave it out"
        )


def check_out(job: TrainJob) -> None:
    """Fail before the training, not after it, if the model folder cannot be written."""
    out = job.out
    for owner, folder in (("encoder", job.choice.encoder), ("teacher", job.choice.teacher)):
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
    if choice.objective.learn_error:
        return "--learn-error"
    return "--distill" if choice.objective.distill else None
