"""ElasticBERT (Liu et al. 2022): a pooler and a classifier for every output layer."""

from models.checkpoints.checkpoint import RawCheckpoint
from models.checkpoints.errors import UnusableCheckpoint
from models.checkpoints.found import Found, Reading
from models.checkpoints.settings import state_rule, stated
from models.heads import HeadConfig
from models.multi_exit import ExitConfig

_POOLER, _CLASSIFIER = r"elasticbert\.encoder\.pooler\.(\d+)\.", r"classifiers\.(\d+)\.weight$"


def claims(raw: RawCheckpoint) -> bool:
    """Tell whether the encoder is ElasticBERT's."""
    return raw.weights.has(r"elasticbert\.")


def read(raw: RawCheckpoint, last_ramp: bool) -> Reading:
    """Take the checkpoint apart. Where pooler or classifier is missing there is no exit.

    Raises:
        UnusableCheckpoint: it was pretrained only, or the last layer has no head.
    """
    weights = raw.weights
    if not weights.has(_CLASSIFIER):
        raise UnusableCheckpoint(
            f"{raw.folder} is an ElasticBERT that was pretrained only: it has no classifiers to "
            "serve. Fine-tune it first, with its own code or by `offramp train`"
        )
    config = raw.encoder_config("bert")
    depth = config.num_hidden_layers
    layers = _exits(raw, depth)
    pooled = weights.has(_POOLER)
    # Classifiers are counted from the first output layer, poolers from the first layer.
    first = depth - int(raw.config.get("num_output_layers") or depth)
    heads = []
    for layer in layers:
        names = {f"classifier.{p}": f"classifiers.{layer - 1 - first}.{p}" for p in _PARTS}
        if pooled:
            place = f"elasticbert.encoder.pooler.{layer - 1}.dense"
            names |= {f"pooler.{p}": f"{place}.{p}" for p in _PARTS}
        heads.append(weights.take(names))
    weights.drop(_POOLER, "a pooler without a classifier")
    weights.drop(_CLASSIFIER.replace("weight$", ""), "a classifier without a pooler")
    missing = [layer for layer in range(1, depth) if layer not in layers]
    found = Found(
        format="ElasticBERT",
        family="bert",
        labels=raw.labels,
        depth=depth,
        exits=ExitConfig(
            exits=layers, task=raw.task, head=HeadConfig(pooling="first", pooler=pooled)
        ),
        rule=state_rule(rule="entropy", threshold=raw.config.get("early_exit_entropy"))
        or state_rule(rule="patience", patience=raw.config.get("patience")),
        asked_for='{"rule": "entropy", "threshold": T} (nats) or {"rule": "patience", '
        '"patience": P}',
        settings=stated(
            raw, "num_output_layers", "max_output_layers", "early_exit_entropy", "patience"
        ),
        notes=_notes(missing),
    )
    return Reading(found, config, weights.take_all("elasticbert."), tuple(heads))


_PARTS = ("weight", "bias")


def _exits(raw: RawCheckpoint, depth: int) -> tuple[int, ...]:
    first = depth - int(raw.config.get("num_output_layers") or depth)
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
