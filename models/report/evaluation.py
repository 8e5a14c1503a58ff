"""The report of `offramp evaluate`: one page, its pictures, and the figures for programs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from models.evaluation.analysis import Analysis
from models.evaluation.costs import MFLOPS, MS
from models.evaluation.measuring import Measured
from models.evaluation.operating_points import STATIC
from models.report.blocks import Block, Facts, Page, Picture, Section, Table, Text
from models.report.parts.agreement import agreement_part
from models.report.parts.calibration import calibration_part
from models.report.parts.difficulty import difficulty_part
from models.report.parts.examples import examples_part
from models.report.parts.exits import exits_part
from models.report.parts.overthinking import overthinking_part
from models.report.parts.part import Part
from models.report.parts.rules import rules_part
from models.report.parts.shares import shares_part
from models.report.pictures.curves import draw_models
from models.report.slugs import slug
from models.report.style import as_svg
from models.report.wording import (
    better_than_full,
    gain_text,
    headline,
    hundredths,
    interval,
    label,
    metric_title,
)


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


class Entry(NamedTuple):
    """A model on a data file, analysed."""

    measured: Measured
    analysis: Analysis
    name: str


def entries_of(measured: Sequence[Measured]) -> list[Entry]:
    """Try all rules on everything that was measured."""
    several = len({found.observed.data for found in measured}) > 1
    analyses = [Analysis.of(found.observed) for found in measured]
    return [
        Entry(found, analysis, label(analysis, several))
        for found, analysis in zip(measured, analyses, strict=True)
    ]


def report(entries: Sequence[Entry], facts: dict[str, str], examples: int) -> Report:
    """Build the report; to be called within `mpl.rc_context(STYLE)`.

    Args:
        entries: what was measured.
        facts: command, date, machine.
        examples: texts of each kind that are shown of the data.
    """
    names = [entry.name for entry in entries]
    sentences = [headline(entry.analysis) for entry in entries]
    page = [
        Section(f"Evaluation of {', '.join(names)}", 1, [Facts(facts | _data(entries))]),
        Section("What early exit gains", 2, _overview(entries, sentences)),
    ]
    models = []
    for place, entry in enumerate(entries, start=1):
        parts = _parts(entry, f"{place}-{slug(entry.name)}", examples)
        page.append(Section(entry.name, 2, _about(entry)))
        page += [Section(part.title, 3, part.blocks) for part in parts.values()]
        models.append(_described(entry) | {name: part.figures for name, part in parts.items()})
    return Report(page, {"facts": facts, "models": models}, sentences)


def _parts(entry: Entry, stem: str, examples: int) -> dict[str, Part]:
    analysis = entry.analysis
    return {
        "rules": rules_part(analysis, stem),
        "exits": exits_part(analysis),
        "exit_shares": shares_part(analysis, stem),
        "agreement": agreement_part(analysis, stem),
        "overthinking": overthinking_part(analysis, stem),
        "calibration": calibration_part(analysis, stem),
        "first_exit": difficulty_part(analysis),
        "examples": examples_part(analysis, entry.measured.given, stem, examples),
    }


def _overview(entries: Sequence[Entry], sentences: Sequence[str]) -> list[Block]:
    blocks: list[Block] = [Text(sentence) for sentence in sentences]
    notes = [better_than_full(entry.analysis) for entry in entries]
    blocks += [Text(note) for note in notes if note]
    blocks.append(_models(entries))
    if len(entries) > 1:
        analyses = [entry.analysis for entry in entries]
        figure = draw_models(analyses, [entry.name for entry in entries])
        caption = (
            "Each model's rules (solid) and its layers as static models (dotted), on the same axes."
        )
        blocks.append(Picture("models.svg", caption, as_svg(figure)))
    return blocks


def _models(entries: Sequence[Entry]) -> Table:
    head = ("model", "precision", "parameters", "layers", "full depth", "95 % interval")
    rows = []
    for entry in entries:
        analysis, subject = entry.analysis, entry.analysis.observed.subject
        full = analysis.points[STATIC][-1]
        parameters = subject.num_parameters
        gains = analysis.gains.get(analysis.headline or "")
        rows.append(
            [
                entry.name,
                subject.precision,
                _count(parameters),
                str(analysis.observed.traits.exits[-1]),
                f"{hundredths(analysis.value(full))} ({metric_title(analysis)})",
                interval(analysis.interval(full)),
                *(_cost(analysis, unit) for unit in (MFLOPS, MS)),
                "-" if gains is None else gain_text(gains),
            ]
        )
    return Table([*head, "MFLOPs", "ms", "gain of early exit"], rows)


def _count(parameters: int | None) -> str:
    if parameters is None:
        return "not known"
    return f"{parameters / 1e6:.1f} M" if parameters >= 1e5 else f"{parameters / 1e3:.1f} k"


def _cost(analysis: Analysis, unit: str) -> float | None:
    known = unit in analysis.observed.costs
    return analysis.mean_cost(analysis.points[STATIC][-1], unit) if known else None


def _data(entries: Sequence[Entry]) -> dict[str, str]:
    files = {entry.analysis.observed.data for entry in entries}
    listed = [
        f"{f.name}: {f.rows} rows, sha256 `{f.sha256[:12]}...`" for f in sorted(files, key=str)
    ]
    return {"data": "; ".join(listed)}


def _about(entry: Entry) -> list[Block]:
    observed = entry.analysis.observed
    subject = observed.subject
    exits = ", ".join(map(str, observed.traits.exits))
    origin = subject.origin[0].upper() + subject.origin[1:]
    words = (
        f"{origin} in {subject.precision}; task `{observed.traits.task}`; exits at "
        f"layers {exits}. {observed.num_rows} texts of {observed.num_tokens.mean():.1f} tokens "
        "in the mean."
    )
    if subject.num_parameters is None:
        words += f" Parameters are not known: {subject.unknown[MFLOPS]}."
    return [Text(words), *([Text(entry.measured.note)] if entry.measured.note else [])]


def _described(entry: Entry) -> dict[str, Any]:
    observed = entry.analysis.observed
    subject = observed.subject
    return {
        "name": entry.name,
        "origin": subject.origin,
        "precision": subject.precision,
        "task": observed.traits.task,
        "labels": observed.traits.labels,
        "exits": observed.traits.exits,
        "temperatures": observed.temperatures,
        "parameters": subject.num_parameters,
        "not_known": subject.unknown,
        "metric": observed.metric.name,
        "data": observed.data.model_dump(),
        "mean_tokens": float(observed.num_tokens.mean()),
    }
