"""What a report says: one page, its pictures, and the figures for programs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from models.quality.analysis import Analysis
from models.quality.card import hundredths
from models.quality.costs import MFLOPS, MS
from models.quality.page import Block, Page, Part, Picture, table
from models.quality.report.calibration import calibration_part
from models.quality.report.curves import draw_models
from models.quality.report.examples import examples_part
from models.quality.report.exits import exits_part, overthinking_part, shares_part
from models.quality.report.reference import reference_part
from models.quality.report.rules import rules_part
from models.quality.report.wording import (
    better_than_full,
    gain_sentence,
    gain_text,
    headline,
    interval,
    metric_title,
    slug,
)
from models.quality.style import as_svg
from serve.rules.traits import listed


class Report(NamedTuple):
    """What is written.

    Attributes:
        page: for people.
        figures: for programs.
        summary: for the terminal.
    """

    page: Page
    figures: dict[str, Any]
    summary: list[str]


def report(analyses: Sequence[Analysis], facts: dict[str, str], examples: int) -> Report:
    """Build the report; to be called within `mpl.rc_context(STYLE)`.

    Args:
        analyses: what was measured.
        facts: command, date, machine.
        examples: texts of each kind that are shown of the data.
    """
    several = len({analysis.data for analysis in analyses}) > 1
    # Of several files each model is named with its own.
    named = [(a.model.name + (f" on {a.data.name}" if several else ""), a) for a in analyses]
    summary = []
    for analysis in analyses:
        summary.append(headline(analysis))
        if analysis.reference:
            compared = analysis.reference.of_full_depth(analysis.recorded)
            summary.append(f"{analysis.model.name}: {compared}.")
    lines = [f"* {name}: {value}" for name, value in (facts | _data(analyses)).items()]
    page: list[Block] = [
        f"# Evaluation of {', '.join(name for name, _ in named)}",
        "\n".join(lines),
        "## What early exit gains",
        *_overview(named, summary),
    ]
    models = []
    for place, (name, analysis) in enumerate(named, start=1):
        parts = _parts(analysis, f"{place}-{slug(name)}", examples)
        page += [f"## {name}", *_about(analysis)]
        for part in parts.values():
            page += [f"### {part.title}", *part.blocks]
        models.append(_described(name, analysis) | {key: p.figures for key, p in parts.items()})
    return Report(page, {"facts": facts, "models": models}, summary)


def _parts(analysis: Analysis, stem: str, examples: int) -> dict[str, Part]:
    """Return the parts in the order of the page. A further part is a function and a line here."""
    reference = analysis.reference
    return {
        **({"reference": reference_part(analysis, reference)} if reference else {}),
        "rules": rules_part(analysis, stem),
        "exits": exits_part(analysis),
        "exit_shares": shares_part(analysis),
        "overthinking": overthinking_part(analysis),
        "calibration": calibration_part(analysis, stem),
        "examples": examples_part(analysis, examples),
    }


def _overview(named: Sequence[tuple[str, Analysis]], summary: list[str]) -> list[Block]:
    notes = [note(analysis) for note in (gain_sentence, better_than_full) for _, analysis in named]
    blocks: list[Block] = [*dict.fromkeys([*summary, *filter(None, notes)]), _models(named)]
    if len(named) > 1:
        caption = (
            "Each model's rules (solid) and its layers as static models (dotted), on the same axes."
        )
        blocks.append(Picture("models.svg", caption, as_svg(draw_models(named))))
    return blocks


def _models(named: Sequence[tuple[str, Analysis]]) -> str:
    head = ("model", "precision", "parameters", "layers", "full depth", "95 % interval")
    rows = []
    for name, analysis in named:
        full, gained = analysis.full, analysis.gains.get(analysis.headline or "")
        rows.append(
            [
                name,
                analysis.model.precision,
                _count(analysis.model.num_parameters),
                str(analysis.exits[-1]),
                f"{hundredths(full.value)} ({metric_title(analysis)})",
                interval(full.interval),
                *(full.costs.get(unit) for unit in (MFLOPS, MS)),
                "-" if gained is None else gain_text(gained),
            ]
        )
    return table([*head, "MFLOPs", "ms", "gain of early exit"], rows)


def _count(parameters: int | None) -> str:
    if parameters is None:
        return "not known"
    return f"{parameters / 1e6:.1f} M" if parameters >= 1e5 else f"{parameters / 1e3:.1f} k"


def _data(analyses: Sequence[Analysis]) -> dict[str, str]:
    files = sorted({analysis.data for analysis in analyses}, key=str)
    return {
        "data": "; ".join(f"{f.name}: {f.rows} rows, sha256 `{f.sha256[:12]}...`" for f in files)
    }


def _about(analysis: Analysis) -> list[Block]:
    model, recorded = analysis.model, analysis.recorded
    origin = model.origin[0].upper() + model.origin[1:]
    words = (
        f"{origin} in {model.precision}; task `{recorded.traits.task}`; exits at layers "
        f"{listed(analysis.exits)}. {recorded.num_rows} texts of "
        f"{recorded.num_tokens.mean():.1f} tokens in the mean."
    )
    if model.num_parameters is None:
        words += f" Parameters are not known: {model.unknown[MFLOPS]}."
    return [words, *([analysis.note] if analysis.note else [])]


def _described(name: str, analysis: Analysis) -> dict[str, Any]:
    model, recorded = analysis.model, analysis.recorded
    return {
        "name": name,
        "origin": model.origin,
        "precision": model.precision,
        "task": recorded.traits.task,
        "labels": recorded.traits.labels,
        "exits": analysis.exits,
        "temperatures": recorded.temperatures,
        "parameters": model.num_parameters,
        "not_known": model.unknown,
        "metric": analysis.metric,
        "data": analysis.data.model_dump(),
        "mean_tokens": float(recorded.num_tokens.mean()),
    }
