"""What `offramp train` refuses before it reads the data."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile

from models.encoders.families import read_config
from models.errors import TrainingFailed
from models.multi_exit import check_exits
from models.training.job import FROZEN, ModelChoice

# These recipes train the earlier exits on layers that stay as they are.
_ON_FROZEN_LAYERS = ("two-stage", FROZEN)


def check_choice(choice: ModelChoice) -> None:
    """Raise TrainingFailed if options exclude each other, or exits are not the encoder's."""
    if choice.exits:
        try:
            check_exits(choice.exits, read_config(choice.encoder).num_hidden_layers)
        except ValueError as error:
            raise TrainingFailed(f"--exits: {error}") from error
    if choice.objective.exit_weights and choice.recipe in _ON_FROZEN_LAYERS:
        raise TrainingFailed(
            f"--exit-weights: recipe {choice.recipe} trains the earlier exits apart from each "
            "other, so that weights would change nothing; leave them out, or take another recipe"
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
