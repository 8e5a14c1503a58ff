"""Building the manifest of a new bundle."""

from collections.abc import Iterable

import torch
import transformers

from export.chain.segments import segment_inputs
from export.checks.contract import Port, segment_outputs
from export.files import joined_path, segment_path, weights_path
from export.plan import Export
from models.checkpoints.token_limit import max_tokens
from models.heads import AnyHeadConfig, AttentionHeadConfig
from serve.bundle.manifest import (
    Exit,
    Head,
    Manifest,
    Parity,
    Precision,
    Segment,
    Source,
    Variant,
)
from serve.version import __version__


def describe(export: Export, measured: dict[Precision, Parity], files: dict[str, str]) -> Manifest:
    """Return the manifest.

    Args:
        export: the planned export.
        measured: parity of every variant.
        files: sha256 of every file except the manifest, by path.
    """
    model = export.model
    return Manifest(
        task=model.exit_config.task,
        labels=tuple(model.labels),
        learned=model.traits.learned,
        exits=tuple(Exit(layer=span.exit_layer) for span in export.spans),
        width=model.config.hidden_size,
        max_tokens=max_tokens(export.folder, model),
        pad_id=model.config.pad_token_id or 0,
        token_types=model.backbone.has_token_types,
        vocab_size=model.config.vocab_size,
        type_vocab_size=max(getattr(model.config, "type_vocab_size", 1), 1),
        head=_head(model.exit_config.head),
        trained_for=export.trained_for,
        policy=export.policy,
        variants={p: _variant(export, p, parity) for p, parity in measured.items()},
        source=_source(export),
        files=files,
    )


def _head(config: AnyHeadConfig) -> Head:
    if isinstance(config, AttentionHeadConfig):
        return Head(kind="attention", pooling=config.pooling, pooler=True)
    return Head(
        pooling=config.pooling,
        pooler=config.pooler,
        activation=config.activation if config.pooler else "none",
        norm=config.norm is not None,
    )


def _variant(export: Export, precision: Precision, parity: Parity) -> Variant:
    return Variant(
        segments=tuple(
            Segment(
                file=segment_path(precision, span.exit_layer),
                exit_layer=span.exit_layer,
                inputs=_names(segment_inputs(export.model, span)),
                outputs=_names(segment_outputs(export.model.traits)),
            )
            for span in export.spans
        ),
        joined=joined_path(precision),
        weights=weights_path(precision),
        parity=parity,
    )


def _names(ports: Iterable[Port]) -> tuple[str, ...]:
    return tuple(port.name for port in ports)


def _source(export: Export) -> Source:
    return Source(
        model=export.folder.resolve().name,
        offramp_version=__version__,
        torch_version=torch.__version__,
        transformers_version=transformers.__version__,
    )
