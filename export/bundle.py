"""Writing a bundle: graphs, manifest, card."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from export.bundle_folder import BUNDLE
from export.card import card
from export.chain.gpu_segments import gpu_segment
from export.chain.segments import build_segment, variant
from export.chain.weights import WeightsFile
from export.checks import overflow, parity, samples
from export.files import (
    copy_certifying,
    copy_recording,
    head_path,
    joined_path,
    save_joined,
    save_segment,
    segment_path,
    sizes_of,
    weights_path,
    write_model_files,
)
from export.ladders import carried, check_kept, lost
from export.manifest import describe
from export.plan import Export, plan
from models.staging import staged
from serve.bundle.calibration import Calibration
from serve.bundle.loader import CALIBRATION, MANIFEST, Bundle, load_bundle, sha256_of
from serve.bundle.manifest import FOR_GPUS, Manifest, Parity, Precision
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner

__all__ = ["plan", "write"]

Report = Callable[[str], None]
_UNMEASURED = Parity(max_logit_error=0, label_agreement=0, rows=0)


def write(
    export: Export,
    out: Path,
    report: Report = lambda step: None,
    note: Report = lambda remark: None,
    force: bool = False,
) -> Manifest:
    """Write the bundle, whole or not at all, and return its manifest.

    Args:
        export: from `plan`.
        out: the bundle's folder; an existing bundle there is replaced.
        report: called with the name of every step before the step starts.
        note: called with what turns out only now, such as certificates of other weights, or
            activations that fp16 may not hold.
        force: whether certified rules of a bundle at `out` may be dropped.

    Raises:
        ExportFailed: `out` exists and is no bundle, or is calibrated and the new one would not
            be, or the segments' results differ from the model's. `out` is then unchanged.
    """
    out = out.resolve()
    if not force:
        check_kept(out, export.calibration.ladders)
    with staged(out, BUNDLE) as folder:
        _write_graphs(export, folder, report)
        write_model_files(export.folder, export.tokenizer, folder)
        if export.whole:
            shape = len(export.model.exits), len(export.model.labels)
            copy_recording(export.folder, folder, export.kept, shape)
        if export.table:
            shutil.copyfile(export.folder / export.table.file, folder / export.table.file)
        export = _with_fitting_ladders(export, folder, note)
        if not force:
            check_kept(out, export.calibration.ladders)
        for each in lost(out, export.calibration.ladders):
            note(f"the bundle that stood there is replaced with its certified rules: {each}")
        if export.calibration != Calibration():
            (folder / CALIBRATION).write_text(export.calibration.model_dump_json(indent=2))
        measured = _measure(export, folder, report, note)
        _write_card(export, measured, out.name, folder)
        return _write_manifest(export, measured, folder)


def _with_fitting_ladders(export: Export, folder: Path, note: Report) -> Export:
    """Return the export with the ladders that are of the weights in the folder.

    What is kept of their texts is copied.
    """
    weights = {p: sha256_of(folder / weights_path(p)) for p in export.precisions}
    exits = tuple(span.exit_layer for span in export.spans)
    table = sha256_of(folder / export.table.file) if export.table else None
    fitting = carried(export.calibration.ladders, weights, exits, table)
    for remark in fitting.notes:
        note(remark)
    copy_certifying(export.folder, folder, fitting.ladders)
    calibration = export.calibration.model_copy(update={"ladders": fitting.ladders})
    return replace(export, calibration=calibration)


def _write_graphs(export: Export, folder: Path, report: Report) -> None:
    weights = {p: WeightsFile(folder / weights_path(p)) for p in export.precisions}
    for span in export.spans:
        report(f"exit {span.exit_layer}")
        segment = build_segment(export.model, span)
        for precision in export.precisions:
            path = folder / segment_path(precision, span.exit_layer)
            if precision == "fp16":
                body, head = gpu_segment(segment)
                save_segment(body, path, weights[precision])
                path = folder / head_path(precision, span.exit_layer)
                save_segment(head, path, weights[precision])
            else:
                save_segment(variant(segment, precision), path, weights[precision])
    for precision in export.precisions:
        if precision not in FOR_GPUS:
            segments = [folder / segment_path(precision, span.exit_layer) for span in export.spans]
            save_joined(segments, folder / joined_path(precision))


def _write_manifest(export: Export, measured: dict[Precision, Parity], folder: Path) -> Manifest:
    manifest = describe(export, measured, folder)
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2))
    return manifest


def _write_card(export: Export, measured: dict[Precision, Parity], name: str, folder: Path) -> None:
    manifest = describe(export, measured, folder)
    text = card(name, manifest, export.calibration, sizes_of(folder, manifest))
    (folder / "README.md").write_text(text)


def _measure(export: Export, folder: Path, report: Report, note: Report) -> dict[Precision, Parity]:
    """Load the bundle as the server does, and compare every variant with the model."""
    _write_manifest(export, dict.fromkeys(export.precisions, _UNMEASURED), folder)
    bundle = load_bundle(folder)
    measured = {}
    for precision in export.precisions:
        report(f"parity of {precision}")
        measured[precision] = _parity(export, bundle, precision)
    if "fp16" in export.precisions:
        remark = overflow.warning(overflow.find_peak(export.model, _texts(bundle)))
        if remark:
            note(remark)
    return measured


def _texts(bundle: Bundle) -> list[samples.Batch]:
    manifest = bundle.manifest
    return samples.text_batches(bundle.tokenizer_path, manifest.max_tokens, manifest.pad_id)


def _parity(export: Export, bundle: Bundle, precision: Precision) -> Parity:
    model, manifest = export.model, bundle.manifest
    runner = build_runner(bundle, Placement("cpu", precision), available_threads())
    odd = samples.odd_batches(manifest.max_tokens, model.config.vocab_size)
    texts = _texts(bundle)
    on_odd = parity.compare(runner, model, export.spans, odd)
    on_texts = parity.compare(runner, model, export.spans, texts)
    parity.check([*on_odd, *on_texts], precision)
    return parity.summary(on_texts)
