"""All supported checkpoint formats. A further format is a module and a line here."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from models.checkpoints import elasticbert, fastbert, highways, offramp, pabee, plain_classifier
from models.checkpoints.build_model import build_model
from models.checkpoints.parsed import CheckpointInfo, ParsedCheckpoint
from models.checkpoints.raw_checkpoint import RawCheckpoint, unsupported
from models.checkpoints.token_limit import max_tokens, stated_limit
from models.checkpoints.tokenizer_files import check_around, check_embeddings, read_tokenizer
from models.encoders.families import BUFFERS, FAMILIES
from models.errors import UnusableCheckpoint
from models.model_files import check_files
from models.multi_exit import MultiExitModel
from models.weight_files import OF_TRAINING
from serve.bundle.manifest import TrainedFor
from serve.policy.document import Policy

# The profile with the rule that the checkpoint states.
ORIGINAL = "original"
# What may lie beside a classifier without being a part of it.
_UNUSED = {
    BUFFERS: "buffers, which are computed",
    r"(cls|decoder|discriminator\w*|generator\w*|lm_head|lm_predictions|mask_predictions|mlm\w*|"
    r"predictions|sop_classifier|vocab_\w+)\.": "heads of the pretraining",
    OF_TRAINING.pattern: "of the training: class weights of its loss, or a count of averages",
}


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
        UnusableCheckpoint: no supported checkpoint, or one that cannot be served, such as one with
            weights that no part of the model reads.
    """
    folder = Path(folder)
    check_files(folder)
    stated_limit(folder)  # what is wrong with it is told before the work
    raw = RawCheckpoint(folder, last_ramp)
    for pattern, why in _UNUSED.items():
        raw.weights.drop(pattern, why)
    parsed = _parse(raw)
    raw.weights.check_empty(folder, parsed.info.format)
    parsed = replace(parsed, info=replace(parsed.info, dropped=tuple(raw.weights.dropped)))
    if layers is not None:
        parsed = parsed.cut(layers)
    _check_labels(parsed, folder)
    _check_padding(parsed, folder)
    tokenizer = read_tokenizer(folder, parsed.info.format, parsed.info.family)
    check_embeddings(tokenizer, parsed.config.vocab_size, folder)
    info, model = parsed.info, build_model(parsed)
    if info.format != "Offramp":  # which is trained and served with the same positions
        check_around(tokenizer.content, model.backbone.unplaced_id, folder)
    limit = max_tokens(folder, model, Tokenizer.from_str(tokenizer.content))
    return LoadedCheckpoint(model, info, tokenizer.content, tokenizer.files, limit)


def _check_labels(parsed: ParsedCheckpoint, folder: Path) -> None:
    """Refuse labels that are not as many as the classifier's, or too few for the task."""
    labels, task = parsed.info.labels, parsed.info.exits.task
    for head in parsed.heads:
        found = head["classifier.weight"]
        if found.ndim and len(found) != len(labels):
            raise UnusableCheckpoint(
                f"{folder}/config.json names the labels {', '.join(labels)[:80]}, and the "
                f"classifier has {len(found)} outputs; write an id2label with a name for each"
            )
    if task != "regression" and len(labels) < 2:
        raise UnusableCheckpoint(
            f"{folder}/config.json has one label, {labels[0]!r}, and task {task} needs at least two"
        )


def _check_padding(parsed: ParsedCheckpoint, folder: Path) -> None:
    rows, padding = parsed.config.vocab_size, parsed.config.pad_token_id
    if padding is not None and not 0 <= padding < rows:
        raise UnusableCheckpoint(
            f"{folder}/config.json: pad_token_id is {padding}, and the model has embeddings for "
            f"ids from 0 to {rows - 1} only"
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
    raise UnusableCheckpoint(_no_classifier(raw))


def _no_classifier(raw: RawCheckpoint) -> str:
    """Return what the folder holds instead, and the next step."""
    if raw.weights.has(r".*_sum_weights\b"):
        return (
            f"{raw.folder} is a Sledgehammer checkpoint (Schwartz et al. 2020): its heads read a "
            "weighted sum of the states after all layers so far, which segments do not pass on. "
            "Train exits on its backbone with `offramp train` instead, and ask for "
            '{"rule": "confidence", "threshold": T}, its rule'
        )
    step = f"`offramp train --encoder {raw.folder} --train FILE --dev FILE --out MODEL`"
    if any((raw.folder / name).exists() for name in ("config_setfit.json", "model_head.pkl")):
        return (
            f"{raw.folder} is a SetFit model: its classifier is model_head.pkl, a pickle, and none "
            f"is run. Give its encoder exits with the texts it was trained on: {step}"
        )
    stated = raw.config.get("model_type")
    if stated and stated not in (*FAMILIES, "elasticbert"):
        return f"{raw.folder}: {unsupported(stated)}"
    return (
        f"{raw.folder} is no classifier that is recognised: its weights have neither exits of a "
        f"known system nor a `classifier`, but {raw.weights.names()}. A bare encoder can be given "
        f"exits: {step}"
    )


def _read(kind: Format, raw: RawCheckpoint) -> ParsedCheckpoint:
    try:
        return kind.read(raw)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnusableCheckpoint(
            f"{raw.folder}/config.json: a setting is missing or of the wrong type: {reason}"
        ) from error
