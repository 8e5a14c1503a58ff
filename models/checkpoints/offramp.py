"""Offramp's own model folders, as written by `offramp train`."""

from pydantic import ValidationError

from models.checkpoints.parsed import CheckpointInfo, ParsedCheckpoint
from models.checkpoints.raw_checkpoint import RawCheckpoint
from models.encoders.families import family_of
from models.errors import UnusableCheckpoint
from models.multi_exit import ExitConfig
from serve.validation import explain


def claims(raw: RawCheckpoint) -> bool:
    """Return whether the config has the `offramp` key."""
    return "offramp" in raw.config


def read(raw: RawCheckpoint) -> ParsedCheckpoint:
    """Parse the checkpoint.

    Raises:
        UnusableCheckpoint: the `offramp` key is invalid.
    """
    try:
        exits = ExitConfig.model_validate(raw.config["offramp"])
    except ValidationError as error:
        raise UnusableCheckpoint(f"{raw.folder}/config.json: offramp: {explain(error)}") from None
    config = raw.encoder_config(str(raw.config.get("model_type")))
    info = CheckpointInfo(
        format="Offramp",
        family=config.model_type,
        labels=raw.labels,
        depth=config.num_hidden_layers,
        exits=exits,
        rule_hint="as policy.json says, if there is one",
    )
    heads = tuple(raw.weights.take_all(f"exits.{i}.") for i in range(len(exits.exits)))
    prefix = family_of(config).encoder.base_model_prefix
    return ParsedCheckpoint(info, config, raw.weights.take_all(f"{prefix}."), heads)
