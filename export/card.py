"""The bundle's README: its source, its measured figures, how to serve it."""

from models.checkpoints.formats import ORIGINAL
from models.quality.card import exit_table, with_certificates
from serve.bundle.calibration import Calibration
from serve.bundle.manifest import Manifest, Precision


def card(name: str, manifest: Manifest, calibration: Calibration, sizes: dict[str, int]) -> str:
    """Return the card as Markdown.

    Args:
        name: the bundle's folder.
        manifest: the final manifest, with parity.
        calibration: the figures that hold for this bundle; may be empty.
        sizes: size of each variant's graphs in bytes.
    """
    source = manifest.source
    exits = ", ".join(map(str, manifest.exit_layers))
    lines = [
        f"# {name}",
        "",
        f"An Offramp bundle of `{source.model}`{_origin(manifest)}: "
        f"{manifest.num_layers} layers of width {manifest.width}, "
        f"exits after layers {exits}, up to {manifest.max_tokens} tokens.",
        f"Task: {manifest.task}. Labels: {', '.join(manifest.labels)}.",
        *_original_rule(manifest),
        "",
        f"Serve it: `offramp serve FOLDER --standalone`, where FOLDER is the path of `{name}`.",
        "",
        "| variant | size | largest logit error | same label as the model | rows |",
        "|---|---|---|---|---|",
        *(_variant(precision, manifest, sizes) for precision in manifest.variants),
        "",
        *([f"The model was {source.compared}.", ""] if source.compared else []),
        *_figures(calibration),
        f"Written by offramp {source.offramp_version} with torch {source.torch_version} and "
        f"transformers {source.transformers_version}.",
        "",
    ]
    wish = manifest.policy.wish_for(None)
    return with_certificates("\n".join(lines), calibration.ladders, wish)


def _origin(manifest: Manifest) -> str:
    method = manifest.trained_for.method
    return "" if method in (None, "transformers") else f", read from its {method} checkpoint"


def _original_rule(manifest: Manifest) -> list[str]:
    rule = manifest.policy.profiles.get(ORIGINAL)
    if rule is None or manifest.trained_for.rule is None:
        return []
    stated = rule.model_dump_json(exclude_none=True)
    return [f"Profile `{ORIGINAL}` is the rule that the checkpoint states: `{stated}`."]


def _variant(precision: Precision, manifest: Manifest, sizes: dict[str, int]) -> str:
    parity = manifest.variants[precision].parity
    # A value has no label that could be the same.
    same = "-" if manifest.task == "regression" else f"{parity.label_agreement:.1%}"
    return (
        f"| {precision} | {sizes[precision] / 1e6:.1f} MB | {parity.max_logit_error:.2g} "
        f"| {same} | {parity.rows} |"
    )


def _figures(calibration: Calibration) -> list[str]:
    parts = ((p, exit_table(figures)) for p, figures in calibration.variants.items())
    return [line for precision, table in parts for line in (f"{precision}. {table}", "")]
