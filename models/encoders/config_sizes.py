"""Numbers in a `config.json` by which transformers allocates before it looks at any weight.

All other sizes are those of weights, which are compared before anything is allocated.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.errors import UnusableCheckpoint
from serve.bundle.manifest import MOST_LABELS, MOST_LAYERS

# A module is made for each: layers, and parts of a layer that are made as often as one says.
_REPEATED = (
    "num_hidden_layers",
    "n_layers",
    "layers_num",
    "num_hidden_groups",
    "inner_group_num",
    "num_feedforward_networks",
)
# The largest of every other one that is no size of a weight in some family.
_MOST = {"num_labels": MOST_LABELS, "max_position_embeddings": 2**20}


def check_sizes(config: Mapping[str, Any], path: Path) -> None:
    """Check a config before a model is made from it.

    Raises:
        UnusableCheckpoint: a number is no number, below 1, or so large that making the model
            would take memory without need.
    """
    modules = 1
    for key in _REPEATED:
        modules *= _size(config, key, MOST_LAYERS, path)
    if modules > MOST_LAYERS:
        raise UnusableCheckpoint(
            f"{path}: {' x '.join(key for key in _REPEATED if key in config)} is {modules}; "
            f"at most {MOST_LAYERS} are supported"
        )
    for key, most in _MOST.items():
        _size(config, key, most, path)
    names = config.get("id2label")
    if names is not None and not isinstance(names, dict):
        raise UnusableCheckpoint(f"{path}: id2label must be an object with a name for every id")
    wrong = next((key for key in names or () if not key.isdecimal()), None)
    if wrong is not None:
        raise UnusableCheckpoint(
            f"{path}: id2label has the key {wrong[:80]!r}; expected the ids 0, 1, ... as keys and "
            "the labels' names as values"
        )
    if names and len(names) > MOST_LABELS:
        raise UnusableCheckpoint(f"{path}: id2label names more than {MOST_LABELS} labels")


def _size(config: Mapping[str, Any], key: str, most: int, path: Path) -> int:
    value = config.get(key)
    if value is None:
        return 1
    if type(value) is not int or not 1 <= value <= most:
        raise UnusableCheckpoint(
            f"{path}: {key} is {value!r}; expected a whole number from 1 to {most}"
        )
    return value
