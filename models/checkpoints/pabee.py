"""PABEE (Zhou et al. 2020) and PCEE-BERT: one pooler for all layers, a classifier for each.

Both have the same weights; only the config tells them apart.
"""

from dataclasses import replace

from torch import Tensor

from models.checkpoints.checkpoint import RawCheckpoint
from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.found import Found, Reading
from models.checkpoints.settings import state_rule, stated
from models.heads import HeadConfig
from models.multi_exit import ExitConfig

_POOLERS = {"bert": "bert.pooler.dense", "albert": "albert.pooler"}
_CLASSIFIER = r"classifiers\.(\d+)\.weight$"
_ENSEMBLES = {0: "none", 1: "run"}  # anything else: all


def claims(raw: RawCheckpoint) -> bool:
    """Tell whether there are classifiers by layer and one pooler."""
    return raw.weights.has(_CLASSIFIER) and _family(raw) is not None


def read(raw: RawCheckpoint, last_ramp: bool) -> Reading:
    """Take the checkpoint apart.

    Raises:
        UnusableCheckpoint: weights are missing.
    """
    weights, family = raw.weights, str(_family(raw))
    config = raw.encoder_config(family)
    depth = config.num_hidden_layers
    layers = [i + 1 for i in weights.indices(_CLASSIFIER)]
    if depth not in layers:
        raise UnusableCheckpoint(f"there is no classifier after the last layer, {depth}")
    pooler = weights.take({f"pooler.{p}": f"{_POOLERS[family]}.{p}" for p in ("weight", "bias")})
    heads = tuple(pooler | _classifier(raw, layer) for layer in layers)
    exits = ExitConfig(exits=tuple(layers), task=raw.task, head=HeadConfig(pooling="first"))
    describe = _pcee if raw.config.get("ee_mechanism") == "V1" else _pabee
    return Reading(
        describe(raw, Found("", family, raw.labels, depth, exits)),
        config,
        weights.take_all(f"{family}."),
        heads,
    )


def _pabee(raw: RawCheckpoint, found: Found) -> Found:
    patience, tolerance = raw.config.get("patience"), raw.config.get("regression_threshold")
    fields = {"rule": "patience", "patience": patience}
    asked_for = '{"rule": "patience", "patience": P}'
    if found.exits.task == "regression":
        fields["tolerance"] = tolerance
        asked_for = '{"rule": "patience", "patience": P, "tolerance": D}'
    return replace(
        found,
        format="PABEE",
        rule=state_rule(**fields),
        asked_for=f"{asked_for}: its patience 0 is the rule never here",
        settings=stated(raw, "patience", "regression_threshold", "ee_mechanism"),
    )


def _pcee(raw: RawCheckpoint, found: Found) -> Found:
    ensemble = _ENSEMBLES.get(int(raw.config.get("do_ensemble") or 0), "all")
    threshold = raw.config.get("exiting_threshold")
    rule = state_rule(
        rule="confident_patience",
        threshold=threshold,
        patience=raw.config.get("patience"),
        ensemble=ensemble,
    )
    shown = "T" if threshold is None else f"{threshold:g}"
    return replace(
        found,
        format="PCEE-BERT",
        rule=rule,
        asked_for=f'{{"rule": "confident_patience", "threshold": {shown}, "patience": P, '
        f'"ensemble": "{ensemble}"}}',
        settings=stated(
            raw, "ee_mechanism", "exiting_threshold", "do_ensemble", "weights_schema", "patience"
        ),
    )


def _family(raw: RawCheckpoint) -> str | None:
    return next((f for f, place in _POOLERS.items() if f"{place}.weight" in raw.weights), None)


def _classifier(raw: RawCheckpoint, layer: int) -> dict[str, Tensor]:
    place = f"classifiers.{layer - 1}"
    return raw.weights.take({f"classifier.{p}": f"{place}.{p}" for p in ("weight", "bias")})
