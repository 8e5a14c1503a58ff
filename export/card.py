"""The bundle's README: where it comes from, what was measured, how to serve it."""

from serve.calibration import Calibration
from serve.manifest import Manifest, Precision


def card(name: str, manifest: Manifest, calibration: Calibration, sizes: dict[str, int]) -> str:
    """Return the card as Markdown.

    Args:
        name: the bundle's folder.
        manifest: with its final parity.
        calibration: the figures that hold for this bundle; may be empty.
        sizes: bytes of each variant's segments.
    """
    source = manifest.source
    exits = ", ".join(map(str, manifest.exit_layers))
    sharing = ", which share one set of weights" if manifest.layers == "shared" else ""
    lines = [
        f"# {name}",
        "",
        f"An Offramp bundle of `{source.model}`: {manifest.num_layers} layers of width "
        f"{manifest.width}{sharing}, exits after layers {exits}, "
        f"up to {manifest.max_tokens} tokens.",
        f"Labels: {', '.join(manifest.labels)}.",
        "",
        f"Serve it: `offramp serve {name}`",
        "",
        "| variant | size | largest logit error | same label as the model | rows |",
        "|---|---|---|---|---|",
        *(_variant(precision, manifest, sizes) for precision in manifest.variants),
        "",
        *_figures(calibration),
        f"Written by offramp {source.offramp_version} with torch {source.torch_version} and "
        f"transformers {source.transformers_version}.",
        "",
    ]
    return "\n".join(lines)


def _variant(precision: Precision, manifest: Manifest, sizes: dict[str, int]) -> str:
    parity = manifest.variants[precision].parity
    return (
        f"| {precision} | {sizes[precision] / 1e6:.1f} MB | {parity.max_logit_error:.2g} "
        f"| {parity.label_agreement:.1%} | {parity.rows} |"
    )


def _figures(calibration: Calibration) -> list[str]:
    lines = []
    for precision, variant in calibration.variants.items():
        lines += [
            f"{precision} on {variant.data.name} ({variant.data.rows} rows):",
            "",
            "| rule | accuracy | same label as the last exit | mean exit layer |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| `{point.rule.model_dump_json(exclude_none=True)}` | {point.accuracy:.2%} "
            f"| {point.agreement:.2%} | {point.mean_exit_layer:.2f} |"
            for point in variant.operating_points
        ]
        lines.append("")
    return lines
