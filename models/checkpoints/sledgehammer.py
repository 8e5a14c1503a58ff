"""Sledgehammer, "The Right Tool for the Job" (Schwartz et al. 2020): recognised, not served."""

from models.checkpoints.checkpoint import RawCheckpoint
from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.found import Reading


def claims(raw: RawCheckpoint) -> bool:
    """Tell whether heads weigh the pooled states of all layers before them."""
    return raw.weights.has(r".*_sum_weights\b") and raw.weights.has(r".*_classification_layers\.")


def read(raw: RawCheckpoint, last_ramp: bool) -> Reading:
    """Refuse it.

    Raises:
        UnusableCheckpoint: always.
    """
    raise UnusableCheckpoint(
        f"{raw.folder} is a Sledgehammer checkpoint: its heads read a weighted sum of the first "
        "token's states after all layers so far, which segments do not pass on. Train exits on its "
        "backbone with `offramp train` instead, and ask for "
        '{"rule": "confidence", "threshold": T}, its rule'
    )
