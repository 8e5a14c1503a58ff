"""The manifest of a bundle that is being written."""

import torch
import transformers

from export import source
from export.files import segment_path
from export.plan import Export
from export.segments import segment_inputs
from serve.manifest import Exit, Head, Manifest, Parity, Precision, Segment, Source, Variant
from serve.version import __version__


def describe(export: Export, measured: dict[Precision, Parity], files: dict[str, str]) -> Manifest:
    """Return the manifest.

    Args:
        export: what is written.
        measured: parity of every variant.
        files: sha256 of every file but the manifest, by path.
    """
    model = export.model
    head = model.exit_config.head
    return Manifest(
        labels=tuple(model.labels),
        exits=tuple(Exit(layer=span.exit_layer) for span in export.spans),
        width=model.config.hidden_size,
        max_tokens=source.max_tokens(export.folder, model),
        pad_id=model.config.pad_token_id or 0,
        token_types=model.backbone.has_token_types,
        head=Head(pooling=head.pooling, pooler=head.pooler),
        policy=export.policy,
        variants={p: _variant(export, p, parity) for p, parity in measured.items()},
        source=_source(export),
        files=files,
    )


def _variant(export: Export, precision: Precision, parity: Parity) -> Variant:
    return Variant(
        segments=tuple(
            Segment(
                file=segment_path(precision, span.exit_layer),
                exit_layer=span.exit_layer,
                inputs=tuple(port.name for port in segment_inputs(export.model, span)),
            )
            for span in export.spans
        ),
        parity=parity,
    )


def _source(export: Export) -> Source:
    return Source(
        model=export.folder.resolve().name,
        offramp_version=__version__,
        torch_version=torch.__version__,
        transformers_version=transformers.__version__,
    )
