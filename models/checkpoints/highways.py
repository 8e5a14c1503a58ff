"""DeeBERT (Xin et al. 2020) and BERxiT (Xin et al. 2021): a "highway" after every layer.

Both systems also save a highway, or ramp, for the last layer, which no loss trains. BERxiT never
uses this last ramp. DeeBERT tests it and lets it answer if it is confident enough. Offramp leaves
the last ramp out, so the main head answers after the last layer. `last_ramp` includes it as an
exit of its own, to compare with the original.
"""

from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from models.checkpoints.parsed import CheckpointInfo, ParsedCheckpoint, stated_rule
from models.checkpoints.raw_checkpoint import RawCheckpoint
from models.checkpoints.weights import Weights
from models.errors import UnusableCheckpoint
from models.heads import HeadConfig
from models.multi_exit import ExitConfig


class _Names(NamedTuple):
    """Names of the weights in one family.

    Attributes:
        stack: the module that holds the highways.
        dense: the dense layer inside a highway.
        main_dense: the main head's dense layer.
    """

    stack: str
    dense: str
    main_dense: str


_NAMES = {
    "bert": _Names("bert.encoder", "pooler.dense", "bert.pooler.dense"),
    "roberta": _Names("roberta.encoder", "pooler.dense", "roberta.pooler.dense"),
    "albert": _Names("albert.encoder", "pooler.dense", "albert.pooler"),
    "distilbert": _Names("distilbert.transformer", "pre_classifier", "pre_classifier"),
}
# BERxiT's default threshold on the predicted error.
_LEARNED_THRESHOLD = 0.005


def claims(raw: RawCheckpoint) -> bool:
    """Return whether there are highways."""
    return _family(raw.weights) is not None


def read(raw: RawCheckpoint) -> ParsedCheckpoint:
    """Parse the checkpoint.

    Raises:
        UnusableCheckpoint: weights are missing, or the last ramp is wanted of a BERxiT.
    """
    weights, family = raw.weights, str(_family(raw.weights))
    is_berxit = weights.has(r"core\.|.*\.lte_classifier\.") or family in ("albert", "distilbert")
    if is_berxit:
        _prepare_berxit(raw)
    config = raw.encoder_config(family)
    depth = config.num_hidden_layers
    exits, heads = _ramps(weights, family, depth if raw.last_ramp else depth - 1)
    if not raw.last_ramp:
        use = "asked" if is_berxit else "trained"
        why = f"the last layer's ramp is never {use}; the main head answers there"
        stack = _NAMES[family].stack
        weights.drop(rf"{stack}\.highway\.{depth - 1}\.", why, f"{stack}.highway.{depth - 1}.*")
    heads.append(_head(weights, _NAMES[family].main_dense, "classifier"))
    exit_config = ExitConfig(
        exits=(*exits, depth + raw.last_ramp),
        task=raw.task,
        head=HeadConfig(pooling="first"),
        second_head=raw.last_ramp,
    )
    info = CheckpointInfo("DeeBERT", family, raw.labels, depth, exit_config)
    info = _describe_berxit(raw, info, heads) if is_berxit else _describe_deebert(raw, info)
    return ParsedCheckpoint(info, config, weights.take_all(f"{family}."), tuple(heads))


def _prepare_berxit(raw: RawCheckpoint) -> None:
    if raw.last_ramp:
        raise UnusableCheckpoint(
            "--last-ramp is for DeeBERT: BERxiT itself never asks its last ramp"
        )
    raw.weights.drop(r"core\.", "the encoder once more, under another name", "core.*")
    raw.weights.drop(r"distilbert\.encoder\.", "the same layers under another name")


def _describe_deebert(raw: RawCheckpoint, info: CheckpointInfo) -> CheckpointInfo:
    depth = info.depth
    note = (
        f"--last-ramp: exit {depth} is the last layer's ramp, which was never trained, and exit "
        f"{depth + 1} the main head after the same layer: read its exit layer as {depth}"
    )
    return replace(
        info,
        rule=stated_rule(rule="entropy", threshold=raw.config.get("early_exit_entropy")),
        rule_hint='{"rule": "entropy", "threshold": T}: leaves below T nats',
        settings=raw.settings("finetuning_task", "early_exit_entropy"),
        notes=(note,) if raw.last_ramp else (),
    )


def _describe_berxit(
    raw: RawCheckpoint, info: CheckpointInfo, heads: list[dict[str, Tensor]]
) -> CheckpointInfo:
    learned, notes = _add_uncertainty(raw, f"{_NAMES[info.family].stack}.lte_classifier", heads)
    distilbert = info.family == "distilbert"
    # DistilBERT's ramps predict the error from the first token, not from their dense layer.
    source = "pooling" if distilbert else "pooler"
    head = info.exits.head.model_copy(
        update={
            "activation": "relu" if distilbert else "tanh",
            "uncertainty": source if learned else None,
        }
    )
    hint = '{"rule": "entropy", "threshold": T}: leaves below T nats'
    if learned:
        hint = '{"rule": "learned", "threshold": T}: leaves where the predicted error is below T'
    return replace(
        info,
        format="BERxiT",
        exits=info.exits.model_copy(update={"head": head}),
        rule=stated_rule(rule="learned", threshold=_LEARNED_THRESHOLD) if learned else None,
        rule_hint=hint,
        settings=raw.settings("finetuning_task", "divide", "train_routine"),
        notes=notes,
    )


def _family(weights: Weights) -> str | None:
    found = (f for f, names in _NAMES.items() if weights.has(rf"{names.stack}\.highway\.\d"))
    return next(found, None)


def _ramps(weights: Weights, family: str, layers: int) -> tuple[list[int], list[dict[str, Tensor]]]:
    """Return the exit layers up to `layers`, and their heads' weights."""
    place = f"{_NAMES[family].stack}.highway"
    indices = [i for i in weights.indices(rf"{place}\.(\d+)\.") if i < layers]
    dense = _NAMES[family].dense
    heads = [_head(weights, f"{place}.{i}.{dense}", f"{place}.{i}.classifier") for i in indices]
    return [i + 1 for i in indices], heads


def _head(weights: Weights, dense: str, classifier: str) -> dict[str, Tensor]:
    return weights.take_modules({"pooler": dense, "classifier": classifier})


def _add_uncertainty(
    raw: RawCheckpoint, place: str, heads: list[dict[str, Tensor]]
) -> tuple[bool, tuple[str, ...]]:
    """Give every head a copy of the layer that predicts errors, if that layer was trained.

    The layer is saved whether it was trained or not. Training moves its bias, which starts at
    exactly 0. A training routine for it leaves `divide` in the config, or a name ending in -lte.

    Returns:
        Whether the layer was trained, and notes for the user.
    """
    if f"{place}.weight" not in raw.weights:
        return False, ()
    named = str(raw.config.get("train_routine", "")).endswith("-lte") or "divide" in raw.config
    moved = bool(raw.weights.peek(f"{place}.bias").any())
    if not moved:
        raw.weights.drop(f"{place}\\.", "never trained: its bias is still exactly 0", f"{place}.*")
        warning = "config.json says that the learned exit was trained, but its bias is still 0"
        return False, (warning,) if named else ()
    layer = raw.weights.take_modules({"uncertainty": place})
    for head in heads:
        head.update(layer)
    if named:
        return True, ()
    return True, ("config.json does not say that the learned exit was trained; its weights do",)
