"""Sledgehammer, "The Right Tool for the Job" (Schwartz et al. 2020): recognised, not supported."""

from models.checkpoints.parsed import ParsedCheckpoint
from models.checkpoints.raw_checkpoint import RawCheckpoint
from models.errors import UnusableCheckpoint


def claims(raw: RawCheckpoint) -> bool:
    """Return whether heads read a weighted sum of the pooled states of all earlier layers."""
    return raw.weights.has(r".*_sum_weights\b") and raw.weights.has(r".*_classification_layers\.")


def read(raw: RawCheckpoint) -> ParsedCheckpoint:
    """Refuse the checkpoint.

    Raises:
        UnusableCheckpoint: always.
    """
    raise UnusableCheckpoint(
        f"{raw.folder} is a Sledgehammer checkpoint: its heads read a weighted sum of the first "
        "token's states after all layers so far, which segments do not pass on. Train exits on its "
        "backbone with `offramp train` instead, and ask for "
        '{"rule": "confidence", "threshold": T}, its rule'
    )
