"""PABEE (Zhou et al. 2020) and PCEE-BERT: one pooler for all layers, a classifier for each.

Both have the same weights; only the config tells them apart.
"""

from dataclasses import replace

from models.checkpoints.parsed import CheckpointInfo, ParsedCheckpoint, stated_rule
from models.checkpoints.raw_checkpoint import RawCheckpoint
from models.errors import UnusableCheckpoint
from models.heads import HeadConfig
from models.multi_exit import ExitConfig

_POOLERS = {"bert": "bert.pooler.dense", "albert": "albert.pooler"}
_CLASSIFIER = r"classifiers\.(\d+)\.weight$"
_ENSEMBLES = {0: "none", 1: "run"}  # any other number: all


def claims(raw: RawCheckpoint) -> bool:
    """Return whether there are classifiers by layer and one pooler."""
    return raw.weights.has(_CLASSIFIER) and _family(raw) is not None


def read(raw: RawCheckpoint) -> ParsedCheckpoint:
    """Parse the checkpoint.

    Raises:
        UnusableCheckpoint: weights are missing.
    """
    weights, family = raw.weights, str(_family(raw))
    config = raw.encoder_config(family)
    depth = config.num_hidden_layers
    layers = [i + 1 for i in weights.indices(_CLASSIFIER)]
    if depth not in layers:
        raise UnusableCheckpoint(f"there is no classifier after the last layer, {depth}")
    pooler = weights.take_modules({"pooler": _POOLERS[family]})
    heads = tuple(
        pooler | weights.take_modules({"classifier": f"classifiers.{layer - 1}"})
        for layer in layers
    )
    exits = ExitConfig(exits=tuple(layers), task=raw.task, head=HeadConfig(pooling="first"))
    describe = _describe_pcee if raw.config.get("ee_mechanism") == "V1" else _describe_pabee
    info = describe(raw, CheckpointInfo("", family, raw.labels, depth, exits))
    return ParsedCheckpoint(info, config, weights.take_all(f"{family}."), heads)


def _describe_pabee(raw: RawCheckpoint, info: CheckpointInfo) -> CheckpointInfo:
    settings = {"rule": "patience", "patience": raw.config.get("patience")}
    hint = '{"rule": "patience", "patience": P}'
    if info.exits.task == "regression":
        settings["tolerance"] = raw.config.get("regression_threshold")
        hint = '{"rule": "patience", "patience": P, "tolerance": D}'
    return replace(
        info,
        format="PABEE",
        rule=stated_rule(**settings),
        rule_hint=f"{hint}: its patience 0 is the rule never here",
        settings=raw.settings("patience", "regression_threshold", "ee_mechanism"),
    )


def _describe_pcee(raw: RawCheckpoint, info: CheckpointInfo) -> CheckpointInfo:
    ensemble = _ENSEMBLES.get(int(raw.config.get("do_ensemble") or 0), "all")
    threshold, patience = raw.config.get("exiting_threshold"), raw.config.get("patience")
    shown = "T" if threshold is None else f"{threshold:g}"
    return replace(
        info,
        format="PCEE-BERT",
        rule=stated_rule(
            rule="confident_patience", threshold=threshold, patience=patience, ensemble=ensemble
        ),
        rule_hint=f'{{"rule": "confident_patience", "threshold": {shown}, "patience": P, '
        f'"ensemble": "{ensemble}"}}',
        settings=raw.settings(
            "ee_mechanism", "exiting_threshold", "do_ensemble", "weights_schema", "patience"
        ),
    )


def _family(raw: RawCheckpoint) -> str | None:
    return next((f for f, place in _POOLERS.items() if f"{place}.weight" in raw.weights), None)
