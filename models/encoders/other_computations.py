"""Settings of a `config.json` under which transformers computes what no encoder here computes.

transformers itself ignores some of them today, so that comparing with it would not show them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from models.errors import UnusableCheckpoint

# The only value that is supported, where a config states one at all.
_SUPPORTED: Final[Mapping[str, Any]] = {
    "add_cross_attention": False,
    "custom_pipelines": {},
    "is_decoder": False,
    "is_encoder_decoder": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "quantization_config": None,
    # transformers loads the file that is named here, and no other.
    "transformers_weights": "model.safetensors",
}


def check_computation(config: Mapping[str, Any], path: Path) -> None:
    """Check the settings that no encoder here reads.

    Raises:
        UnusableCheckpoint: one of them asks for another computation.
    """
    if config.get("auto_map"):
        raise UnusableCheckpoint(
            f"{path}: auto_map names code of the model's own, and none is run. Take auto_map "
            "out of config.json if that code computes what transformers' own class computes"
        )
    for key, supported in _SUPPORTED.items():
        stated = config.get(key)
        if stated is not None and stated != supported:
            raise UnusableCheckpoint(
                f"{path}: {key} is {stated!r}, which is not supported: the model would compute "
                f"something else than it was trained to; only {supported!r} is served"
            )
