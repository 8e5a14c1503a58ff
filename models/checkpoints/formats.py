"""Every checkpoint that is recognised. A further format is a module and a line here."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from models.checkpoints import (
    elasticbert,
    fastbert,
    highways,
    own,
    pabee,
    plain,
    sledgehammer,
)
from models.checkpoints.assemble import assemble
from models.checkpoints.checkpoint import RawCheckpoint
from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.found import Found, Reading
from models.checkpoints.vocabulary import tokenizer_json
from models.multi_exit import MultiExitModel
from serve.bundle.manifest import TrainedFor
from serve.policy.document import Policy

ORIGINAL = "original"
# Buffers that transformers once saved and computes itself.
_BUFFERS = r".*(position_ids|token_type_ids|rotary_emb\.inv_freq)$"


class Format(NamedTuple):
    """How a format is told by its keys, and how it is taken apart.

    Attributes:
        claims: whether a checkpoint is of this format.
        read: takes it apart; the second argument asks for DeeBERT's last ramp.
    """

    claims: Callable[[RawCheckpoint], bool]
    read: Callable[[RawCheckpoint, bool], Reading]


# The first that claims a checkpoint has it: from the particular to the general.
_FORMATS = (
    Format(own.claims, own.read),
    Format(highways.claims, highways.read),
    Format(elasticbert.claims, elasticbert.read),
    Format(fastbert.claims, fastbert.read),
    Format(pabee.claims, pabee.read),
    Format(sledgehammer.claims, sledgehammer.read),
    Format(plain.claims, plain.read),
)


@dataclass(frozen=True)
class Loaded:
    """A checkpoint, ready to be exported, measured or trained on.

    Attributes:
        model: in float32 and evaluation mode.
        found: what it is.
        tokenizer: the content of its `tokenizer.json`.
        tokenizer_files: what that was made from.
    """

    model: MultiExitModel
    found: Found
    tokenizer: str
    tokenizer_files: str

    @property
    def trained_for(self) -> TrainedFor:
        """What the manifest says of the rule the heads were made for."""
        method = None if self.found.format == "Offramp" else self.found.format
        return TrainedFor(method=method, rule=self.found.rule)

    @property
    def policy(self) -> Policy:
        """The policy of a checkpoint without one: never, and the original's rule as a profile."""
        rule = self.found.rule
        return Policy(profiles={ORIGINAL: rule} if rule else {})


def load(folder: str | Path, last_ramp: bool = False, layers: int | None = None) -> Loaded:
    """Load any checkpoint that is recognised.

    Args:
        folder: config, weights and tokenizer.
        last_ramp: bring back DeeBERT's last ramp, as an exit before the main head's.
        layers: keep only so many layers.

    Raises:
        UnusableCheckpoint: nothing that is recognised lies there, or it cannot be served; says
            why.
    """
    folder = Path(folder)
    raw = RawCheckpoint(folder)
    raw.weights.drop(_BUFFERS, "buffers, which are computed")
    reading = _read(raw, last_ramp)
    raw.weights.drop("", "unknown to this format")
    found = replace(reading.found, dropped=tuple(raw.weights.dropped))
    reading = replace(reading, found=found)
    if layers is not None:
        reading = reading.cut(layers)
    return Loaded(
        assemble(reading),
        reading.found,
        *tokenizer_json(folder, reading.found),
    )


def _read(raw: RawCheckpoint, last_ramp: bool) -> Reading:
    for kind in _FORMATS:
        if kind.claims(raw):
            reading = kind.read(raw, last_ramp)
            if last_ramp and not reading.found.exits.second_head:
                raise UnusableCheckpoint(
                    f"--last-ramp is for DeeBERT; {raw.folder} is {reading.found.format}"
                )
            return reading
    raise UnusableCheckpoint(
        f"{raw.folder} is no classifier that is recognised: its weights have neither exits of a "
        "known system nor a `classifier`. A bare encoder can be given exits by `offramp train`"
    )
