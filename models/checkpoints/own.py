"""What `offramp train` writes, taken apart like any other checkpoint."""

from pydantic import ValidationError
from transformers import PreTrainedConfig

from models.checkpoints.checkpoint import RawCheckpoint
from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.found import Found, Reading
from models.encoders.families import family_of
from models.multi_exit import ExitConfig
from serve.validation import explain


def claims(raw: RawCheckpoint) -> bool:
    """Tell whether the config describes exits of ours."""
    return "offramp" in raw.config


def read(raw: RawCheckpoint, last_ramp: bool) -> Reading:
    """Take the checkpoint apart.

    Raises:
        UnusableCheckpoint: the description of the exits is not one.
    """
    try:
        exits = ExitConfig.model_validate(raw.config["offramp"])
    except ValidationError as error:
        raise UnusableCheckpoint(f"{raw.folder}/config.json: offramp: {explain(error)}") from None
    config = raw.encoder_config(str(raw.config.get("model_type")))
    found = Found(
        format="Offramp",
        family=config.model_type,
        labels=raw.labels,
        depth=config.num_hidden_layers,
        exits=exits,
        asked_for="as policy.json says, if there is one",
    )
    heads = tuple(raw.weights.take_all(f"exits.{i}.") for i in range(len(exits.exits)))
    return Reading(found, config, raw.weights.take_all(f"{_prefix(config)}."), heads)


def _prefix(config: PreTrainedConfig) -> str:
    return family_of(config).encoder.base_model_prefix
