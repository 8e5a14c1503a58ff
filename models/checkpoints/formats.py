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
from models.checkpoints.token_limit import max_tokens
from models.checkpoints.tokenizer_files import ReadTokenizer, read_tokenizer
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
        max_tokens: longest input that the model and the tokenizer's settings allow.
    """

    model: MultiExitModel
    info: CheckpointInfo
    tokenizer: str
    tokenizer_files: str
    max_tokens: int

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
    _check_labels(parsed, folder)
    tokenizer = read_tokenizer(folder, parsed.info.format, parsed.info.family)
    _check_ids(tokenizer, parsed, folder)
    info = replace(parsed.info, notes=(*parsed.info.notes, *tokenizer.notes))
    model = build_model(parsed)
    limit = max_tokens(folder, model, Tokenizer.from_str(tokenizer.content))
    return LoadedCheckpoint(model, info, tokenizer.content, tokenizer.files, limit)


def _check_labels(parsed: ParsedCheckpoint, folder: Path) -> None:
    """Refuse labels that are not as many as the classifier's, or too few for the task."""
    labels, task = parsed.info.labels, parsed.info.exits.task
    for head in parsed.heads:
        found = head["classifier.weight"]
        if found.ndim and len(found) != len(labels):
            raise UnusableCheckpoint(
                f"{folder}/config.json has {len(labels)} labels ({', '.join(labels)[:80]}), and "
                f"the classifier {len(found)}; write an id2label with a name for each"
            )
    if task != "regression" and len(labels) < 2:
        raise UnusableCheckpoint(
            f"{folder}/config.json has one label, {labels[0]!r}, and task {task} needs at least two"
        )


def _check_ids(tokenizer: ReadTokenizer, parsed: ParsedCheckpoint, folder: Path) -> None:
    """Refuse tokens that have no embedding, by the name of the first."""
    where, rows = f"{folder}: the tokenizer in {tokenizer.files}", parsed.config.vocab_size
    try:
        vocabulary = Tokenizer.from_str(tokenizer.content).get_vocab()
    except Exception as error:  # the library raises no narrower type
        raise UnusableCheckpoint(f"{where} cannot be read: {error}") from error
    padding = parsed.config.pad_token_id
    if padding is not None and padding >= rows:
        raise UnusableCheckpoint(
            f"{folder}/config.json: pad_token_id is {padding}, and the model has embeddings for "
            f"ids up to {rows - 1} only"
        )
    beyond = sorted((i, token) for token, i in vocabulary.items() if i >= rows)
    if beyond:
        more = f" (and {len(beyond) - 1} more beyond it)" if beyond[1:] else ""
        raise UnusableCheckpoint(
            f"{where} has the token {beyond[0][1]!r} with id {beyond[0][0]}{more}, and the model "
            f"has embeddings for ids up to {rows - 1} only. Enlarge them with "
            "resize_token_embeddings, or take the token out of the tokenizer's files"
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
