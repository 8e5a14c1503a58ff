"""DeeBERT (Xin et al. 2020) and BERxiT (Xin et al. 2021): a "highway" after every layer.

Both keep a ramp for the last layer too, which no loss ever trains. BERxiT never asks it; DeeBERT
does, and lets it answer if it is sure enough. Offramp leaves it out: after the last layer the main
head answers. `last_ramp` brings it back as an exit of its own, to compare with the original.
"""

from torch import Tensor

from models.checkpoints.checkpoint import RawCheckpoint
from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.found import Found, Reading
from models.checkpoints.settings import state_rule, stated
from models.checkpoints.weights import Weights
from models.heads import HeadConfig
from models.multi_exit import ExitConfig

# Where each family keeps its highways, and what it calls dense layer and main dense layer.
_HIGHWAYS = {
    "bert": ("bert.encoder", "pooler.dense", "bert.pooler.dense"),
    "roberta": ("roberta.encoder", "pooler.dense", "roberta.pooler.dense"),
    "albert": ("albert.encoder", "pooler.dense", "albert.pooler"),
    "distilbert": ("distilbert.transformer", "pre_classifier", "pre_classifier"),
}
# BERxiT's own default: it leaves early unless told otherwise.
_LEARNED_THRESHOLD = 0.005


def claims(raw: RawCheckpoint) -> bool:
    """Tell whether there are highways."""
    return _family(raw.weights) is not None


def read(raw: RawCheckpoint, last_ramp: bool) -> Reading:
    """Take the checkpoint apart.

    Raises:
        UnusableCheckpoint: weights are missing, or the last ramp is wanted of a BERxiT.
    """
    weights, family = raw.weights, str(_family(raw.weights))
    place, _, _ = _HIGHWAYS[family]
    if weights.has(r"core\.|.*\.lte_classifier\.") or family in ("albert", "distilbert"):
        return _read_berxit(raw, family, last_ramp)
    config = raw.encoder_config(family)
    depth = config.num_hidden_layers
    exits, heads = _ramps(raw, family, depth if last_ramp else depth - 1)
    if not last_ramp:
        why = "the last layer's ramp is never trained; the main head answers there"
        weights.drop(rf"{place}\.highway\.{depth - 1}\.", why, f"{place}.highway.{depth - 1}.*")
    found = Found(
        format="DeeBERT",
        family=family,
        labels=raw.labels,
        depth=depth,
        exits=ExitConfig(
            exits=(*exits, depth + last_ramp),
            task=raw.task,
            head=HeadConfig(pooling="first"),
            second_head=last_ramp,
        ),
        rule=state_rule(rule="entropy", threshold=raw.config.get("early_exit_entropy")),
        asked_for='{"rule": "entropy", "threshold": T}: leaves below T nats',
        settings=stated(raw, "finetuning_task", "early_exit_entropy"),
        notes=_last_ramp_notes(depth) if last_ramp else (),
    )
    heads.append(_main_head(weights, family))
    return Reading(found, config, weights.take_all(f"{family}."), tuple(heads))


def _read_berxit(raw: RawCheckpoint, family: str, last_ramp: bool) -> Reading:
    if last_ramp:
        raise UnusableCheckpoint(
            "--last-ramp is for DeeBERT: BERxiT itself never asks its last ramp"
        )
    weights, (place, _, _) = raw.weights, _HIGHWAYS[family]
    weights.drop(r"core\.", "the encoder once more, under another name", "core.*")
    weights.drop(r"distilbert\.encoder\.", "the same layers under another name")
    config = raw.encoder_config(family)
    depth = config.num_hidden_layers
    exits, heads = _ramps(raw, family, depth - 1)
    why = "the last layer's ramp is never asked; the main head answers there"
    weights.drop(rf"{place}\.highway\.{depth - 1}\.", why, f"{place}.highway.{depth - 1}.*")
    heads.append(_main_head(weights, family))
    learned, notes = _learned(raw, f"{place}.lte_classifier", heads)
    # DistilBERT's ramps hand on what they read, not what their dense layer made of it.
    source = "pooling" if family == "distilbert" else "pooler"
    found = Found(
        format="BERxiT",
        family=family,
        labels=raw.labels,
        depth=depth,
        exits=ExitConfig(
            exits=(*exits, depth),
            task=raw.task,
            head=HeadConfig(
                pooling="first",
                activation="relu" if family == "distilbert" else "tanh",
                uncertainty=source if learned else None,  # type: ignore[arg-type]
            ),
        ),
        rule=state_rule(rule="learned", threshold=_LEARNED_THRESHOLD) if learned else None,
        asked_for='{"rule": "learned", "threshold": T}: leaves where the predicted error is below T'
        if learned
        else '{"rule": "entropy", "threshold": T}: leaves below T nats',
        settings=stated(raw, "finetuning_task", "divide", "train_routine"),
        notes=notes,
    )
    return Reading(found, config, weights.take_all(f"{family}."), tuple(heads))


def _family(weights: Weights) -> str | None:
    return next(
        (f for f, (place, _, _) in _HIGHWAYS.items() if weights.has(rf"{place}\.highway\.\d")), None
    )


def _ramps(
    raw: RawCheckpoint, family: str, layers: int
) -> tuple[list[int], list[dict[str, Tensor]]]:
    """Return the exit layers up to `layers`, and their heads' weights."""
    place, dense, _ = _HIGHWAYS[family]
    present = raw.weights.indices(rf"{place}\.highway\.(\d+)\.")
    exits = [i + 1 for i in present if i < layers]
    heads = [
        _head(
            raw.weights,
            f"{place}.highway.{layer - 1}.{dense}",
            f"{place}.highway.{layer - 1}.classifier",
        )
        for layer in exits
    ]
    return exits, heads


def _main_head(weights: Weights, family: str) -> dict[str, Tensor]:
    return _head(weights, _HIGHWAYS[family][2], "classifier")


def _head(weights: Weights, dense: str, classifier: str) -> dict[str, Tensor]:
    parts = ("weight", "bias")
    return weights.take(
        {f"pooler.{part}": f"{dense}.{part}" for part in parts}
        | {f"classifier.{part}": f"{classifier}.{part}" for part in parts}
    )


def _learned(
    raw: RawCheckpoint, place: str, heads: list[dict[str, Tensor]]
) -> tuple[bool, tuple[str, ...]]:
    """Give every head its copy of the one layer that predicts errors, if it has been trained.

    Its weights are saved trained or not. Training moves its bias, which starts as exactly 0; and
    a routine that trains it leaves `divide` in the config, or a name that ends in -lte.
    """
    if f"{place}.weight" not in raw.weights:
        return False, ()
    named = str(raw.config.get("train_routine", "")).endswith("-lte") or "divide" in raw.config
    moved = bool(raw.weights.peek(f"{place}.bias").any())
    if not moved:
        raw.weights.drop(f"{place}\\.", "never trained: its bias is still exactly 0", f"{place}.*")
        warning = "config.json says that the learned exit was trained, but its bias is still 0"
        return False, (warning,) if named else ()
    learned = raw.weights.take({f"uncertainty.{p}": f"{place}.{p}" for p in ("weight", "bias")})
    for head in heads:
        head.update(learned)
    if named:
        return True, ()
    return True, ("config.json does not say that the learned exit was trained; its weights do",)


def _last_ramp_notes(depth: int) -> tuple[str, ...]:
    return (
        f"--last-ramp: exit {depth} is the last layer's ramp, which was never trained, and exit "
        f"{depth + 1} the main head after the same layer: read its exit layer as {depth}",
    )
