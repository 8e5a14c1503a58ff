"""Building the manifest of a new bundle."""

from pathlib import Path

import onnx_ir as ir
import torch
import transformers
from pydantic import ValidationError

from export.chain.gpu_segments import names
from export.errors import ExportFailed
from export.files import hashes, head_path, joined_path, segment_path, weights_path
from export.plan import Export
from models.heads import AnyHeadConfig, AttentionHeadConfig
from serve.bundle.manifest import (
    FOR_GPUS,
    Exit,
    ExitHead,
    HeadGraph,
    Manifest,
    Parity,
    Precision,
    Segment,
    Source,
    Variant,
)
from serve.validation import explain
from serve.version import __version__


def describe(export: Export, measured: dict[Precision, Parity], folder: Path) -> Manifest:
    """Return the manifest.

    Args:
        export: the planned export.
        measured: parity of every variant.
        folder: holds every other file of the bundle.

    Raises:
        ExportFailed: the model has what no manifest takes, such as two labels of the same name.
    """
    try:
        return _describe(export, measured, folder)
    except ValidationError as error:
        raise ExportFailed(
            f"{export.folder}: no bundle can hold this model: {explain(error)}"
        ) from (None)


def _describe(export: Export, measured: dict[Precision, Parity], folder: Path) -> Manifest:
    model = export.model
    return Manifest(
        task=model.exit_config.task,
        labels=tuple(model.labels),
        learned=model.traits.learned,
        value_is_logit=export.value_is_logit,
        exits=tuple(Exit(layer=span.exit_layer) for span in export.spans),
        width=model.config.hidden_size,
        max_tokens=export.max_tokens,
        pad_id=model.config.pad_token_id or 0,
        token_types=model.backbone.has_token_types,
        vocab_size=model.config.vocab_size,
        type_vocab_size=max(getattr(model.config, "type_vocab_size", 1), 1),
        head=_head(model.exit_config.heads[export.spans[0].head]),
        trained_for=export.trained_for,
        table=export.table,
        policy=export.policy,
        variants={p: _variant(export, p, parity, folder) for p, parity in measured.items()},
        source=_source(export),
        files=hashes(folder),
    )


def _head(config: AnyHeadConfig) -> ExitHead:
    if isinstance(config, AttentionHeadConfig):
        return ExitHead(kind="attention", pooling=config.pooling, pooler=True)
    return ExitHead(
        pooling=config.pooling,
        pooler=config.pooler,
        activation=config.activation if config.pooler else "none",
        norm=config.norm is not None,
    )


def _variant(export: Export, precision: Precision, parity: Parity, folder: Path) -> Variant:
    return Variant(
        segments=tuple(_segment(precision, span.exit_layer, folder) for span in export.spans),
        joined=None if precision in FOR_GPUS else joined_path(precision),
        weights=weights_path(precision),
        parity=parity,
    )


def _segment(precision: Precision, exit_layer: int, folder: Path) -> Segment:
    file = segment_path(precision, exit_layer)
    head = None
    if precision in FOR_GPUS:
        apart = head_path(precision, exit_layer)
        inputs, outputs = _ports(folder / apart)
        head = HeadGraph(file=apart, inputs=inputs, outputs=outputs)
    inputs, outputs = _ports(folder / file)
    return Segment(file=file, exit_layer=exit_layer, inputs=inputs, outputs=outputs, head=head)


def _ports(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a written graph's inputs and outputs."""
    graph = ir.load(path).graph
    return names(graph.inputs), names(graph.outputs)


def _source(export: Export) -> Source:
    return Source(
        model=export.folder.resolve().name,
        offramp_version=__version__,
        torch_version=torch.__version__,
        transformers_version=transformers.__version__,
        compared=export.compared,
    )
