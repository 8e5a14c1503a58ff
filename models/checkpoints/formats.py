"""All supported checkpoint formats. A further format is a module and a line here."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from models.checkpoints import (
    elasticbert,
    fastbert,
    highways,
    offramp,
    pabee,
    plain_classifier,
    sledgehammer,
)
from models.checkpoints.build_model import build_model
from models.checkpoints.parsed import CheckpointInfo, ParsedCheckpoint
from models.checkpoints.raw_checkpoint import RawCheckpoint
from models.checkpoints.tokenizer_files import tokenizer_json
from models.errors import UnusableCheckpoint
from models.multi_exit import MultiExitModel
from serve.bundle.manifest import TrainedFor
from serve.policy.document import Policy

# The profile with the rule that the checkpoint states.
ORIGINAL = "original"
# Buffers that old versions of transformers saved.
_BUFFERS = r".*(position_ids|token_type_ids|rotary_emb\.inv_freq)$"


class Format(Protocol):
    """The functions of a format's module."""

    def claims(self, raw: RawCheckpoint) -> bool:
        """Return whether the names of the weights are this format's."""
        ...

    def read(self, raw: RawCheckpoint) -> ParsedCheckpoint:
        """Parse the checkpoint; raise `UnusableCheckpoint` if it cannot be served."""
        ...


# The first format that claims a checkpoint reads it, so specific formats come first.
_FORMATS: tuple[Format, ...] = (
    offramp,
    highways,
    elasticbert,
    fastbert,
    pabee,
    sledgehammer,
    plain_classifier,
)


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A checkpoint ready to be exported, measured or trained on.

    Attributes:
        model: in float32 and evaluation mode.
        info: description of the checkpoint.
        tokenizer: content of a `tokenizer.json`.
        tokenizer_files: names of the files that the tokenizer was made from.
    """

    model: MultiExitModel
    info: CheckpointInfo
    tokenizer: str
    tokenizer_files: str

    @property
    def trained_for(self) -> TrainedFor:
        """The manifest's entry on the rule that the heads were trained for."""
        method = None if self.info.format == "Offramp" else self.info.format
        return TrainedFor(method=method, rule=self.info.rule)

    @property
    def policy(self) -> Policy:
        """The default policy: never exit early; the original's rule is a profile."""
        rule = self.info.rule
        return Policy(profiles={ORIGINAL: rule} if rule else {})


def load(
    folder: str | Path, last_ramp: bool = False, layers: int | None = None
) -> LoadedCheckpoint:
    """Load a checkpoint of any supported format.

    Args:
        folder: config, weights and tokenizer.
        last_ramp: include DeeBERT's last ramp as an exit before the main head's.
        layers: keep only the first so many layers.

    Raises:
        UnusableCheckpoint: no supported checkpoint, or one that cannot be served.
    """
    folder = Path(folder)
    raw = RawCheckpoint(folder, last_ramp)
    raw.weights.drop(_BUFFERS, "buffers, which are computed")
    parsed = _parse(raw)
    raw.weights.drop("", "unknown to this format")
    parsed = replace(parsed, info=replace(parsed.info, dropped=tuple(raw.weights.dropped)))
    if layers is not None:
        parsed = parsed.cut(layers)
    tokenizer, files = tokenizer_json(folder, parsed.info.format)
    _check_ids(tokenizer, parsed.config.vocab_size, f"{folder}: the tokenizer in {files}")
    return LoadedCheckpoint(build_model(parsed), parsed.info, tokenizer, files)


def _check_ids(tokenizer: str, vocab_size: int, where: str) -> None:
    try:
        largest = max(Tokenizer.from_str(tokenizer).get_vocab().values(), default=0)
    except Exception as error:  # the library raises no narrower type
        raise UnusableCheckpoint(f"{where} cannot be read: {error}") from error
    if largest >= vocab_size:
        raise UnusableCheckpoint(
            f"{where} has ids up to {largest}, and the model's vocab_size is {vocab_size}"
        )


def _parse(raw: RawCheckpoint) -> ParsedCheckpoint:
    for kind in _FORMATS:
        if kind.claims(raw):
            parsed = _read(kind, raw)
            if raw.last_ramp and not parsed.info.exits.second_head:
                raise UnusableCheckpoint(
                    f"--last-ramp is for DeeBERT; {raw.folder} is {parsed.info.format}"
                )
            return parsed
    raise UnusableCheckpoint(
        f"{raw.folder} is no classifier that is recognised: its weights have neither exits of a "
        "known system nor a `classifier`. A bare encoder can be given exits by `offramp train`"
    )


def _read(kind: Format, raw: RawCheckpoint) -> ParsedCheckpoint:
    try:
        return kind.read(raw)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnusableCheckpoint(
            f"{raw.folder}/config.json: a setting is missing or of the wrong type: {reason}"
        ) from error
