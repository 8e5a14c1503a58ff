"""ElasticBERT (Liu et al. 2022): a pooler and a classifier for every output layer."""

from models.checkpoints.parsed import CheckpointInfo, ParsedCheckpoint, stated_rule
from models.checkpoints.raw_checkpoint import RawCheckpoint
from models.errors import UnusableCheckpoint
from models.heads import HeadConfig
from models.multi_exit import ExitConfig

_POOLER, _CLASSIFIER = r"elasticbert\.encoder\.pooler\.(\d+)\.", r"classifiers\.(\d+)\.weight$"


def claims(raw: RawCheckpoint) -> bool:
    """Return whether the encoder is ElasticBERT's."""
    return raw.weights.has(r"elasticbert\.")


def read(raw: RawCheckpoint) -> ParsedCheckpoint:
    """Parse the checkpoint. A layer without pooler or classifier has no exit.

    Raises:
        UnusableCheckpoint: the model was pretrained only, or the last layer has no head.
    """
    weights = raw.weights
    if not weights.has(_CLASSIFIER):
        raise UnusableCheckpoint(
            f"{raw.folder} is an ElasticBERT that was pretrained only: it has no classifiers to "
            "serve. Fine-tune it first: "
            f"`offramp train --encoder {raw.folder} --train FILE --dev FILE --out MODEL`"
        )
    config = raw.encoder_config("bert")
    depth = config.num_hidden_layers
    # Classifiers are counted from the first output layer, poolers from the first layer.
    first = depth - int(raw.config.get("num_output_layers") or depth)
    layers, pooled = _exits(raw, depth, first), weights.has(_POOLER)
    heads = []
    for layer in layers:
        names = {"classifier": f"classifiers.{layer - 1 - first}"}
        if pooled:
            names["pooler"] = f"elasticbert.encoder.pooler.{layer - 1}.dense"
        heads.append(weights.take_modules(names))
    weights.drop(_POOLER, "a pooler without a classifier")
    weights.drop(_CLASSIFIER.replace("weight$", ""), "a classifier without a pooler")
    info = CheckpointInfo(
        format="ElasticBERT",
        family="bert",
        labels=raw.labels,
        depth=depth,
        exits=ExitConfig(
            exits=layers, task=raw.task, head=HeadConfig(pooling="first", pooler=pooled)
        ),
        rule=stated_rule(rule="entropy", threshold=raw.config.get("early_exit_entropy"))
        or stated_rule(rule="patience", patience=raw.config.get("patience")),
        rule_hint='{"rule": "entropy", "threshold": T} (nats) or {"rule": "patience", '
        '"patience": P}',
        settings=raw.settings(
            "num_output_layers", "max_output_layers", "early_exit_entropy", "patience"
        ),
        notes=_notes([layer for layer in range(1, depth) if layer not in layers]),
    )
    return ParsedCheckpoint(info, config, weights.take_all("elasticbert."), tuple(heads))


def _exits(raw: RawCheckpoint, depth: int, first: int) -> tuple[int, ...]:
    classified = {first + i + 1 for i in raw.weights.indices(_CLASSIFIER)}
    poolers = {i + 1 for i in raw.weights.indices(_POOLER)}
    layers = tuple(sorted((classified & poolers) if poolers else classified))
    if not layers or layers[-1] != depth:
        raise UnusableCheckpoint(f"{raw.folder}: there is no head after the last layer, {depth}")
    return layers


def _notes(missing: list[int]) -> tuple[str, ...]:
    if not missing:
        return ()
    listed = ", ".join(map(str, missing))
    return (f"no exit after layers {listed}: pooler or classifier is missing",)
