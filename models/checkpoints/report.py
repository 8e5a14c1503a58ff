"""The report of `offramp inspect`, as a table and as JSON."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from models.checkpoints.comparison import compare, served_by
from models.checkpoints.diagnosis import find_warnings, sample_answers
from models.checkpoints.formats import LoadedCheckpoint
from models.errors import UnusableCheckpoint
from models.heads import AnyHeadConfig, AttentionHeadConfig
from models.multi_exit import ExitConfig


class Report(NamedTuple):
    """A checkpoint with the results of its examination.

    Attributes:
        loaded: the checkpoint.
        answers: (exits, samples) of the exits to built-in sentences.
        compared: what was compared with transformers; empty if something differs.
        warnings: sentences.
    """

    loaded: LoadedCheckpoint
    answers: NDArray[np.int64]
    compared: str
    warnings: list[str]


def examine(folder: Path, loaded: LoadedCheckpoint) -> Report:
    """Run the checkpoint on samples, compare it with transformers, and look for problems."""
    served, compared = served_by(loaded), ""
    answers = sample_answers(loaded, served.tokenizer)
    warnings = find_warnings(loaded, answers)
    try:
        compared = compare(folder, loaded, served)
    except UnusableCheckpoint as error:
        warnings.append(f"`offramp export` refuses it: {error}")
    return Report(loaded, answers, compared, warnings)


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as plain data."""
    loaded, info = report.loaded, report.loaded.info
    return {
        "format": info.format,
        "family": info.family,
        "task": info.exits.task,
        "labels": list(info.labels),
        "layers": info.depth,
        "exits": list(info.exits.exits),
        "head": info.exits.head.model_dump(mode="json"),
        "last_head": info.exits.heads[-1].model_dump(mode="json"),
        "rule": None if info.rule is None else info.rule.model_dump(exclude_none=True),
        "asked_for": info.rule_hint,
        "settings": dict(info.settings),
        "tokenizer": loaded.tokenizer_files,
        "max_tokens": loaded.max_tokens,
        "parameters": sum(p.numel() for p in loaded.model.parameters()),
        "dropped": [{"keys": d.keys, "why": d.why} for d in info.dropped],
        "agreement": _agreement(report),
        "compared": report.compared,
        "notes": list(info.notes),
        "warnings": report.warnings,
    }


def as_table(report: Report) -> Table:
    """Return the report for a terminal."""
    facts = as_json(report)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _lines(report, facts):
        table.add_row(name, text)
    return table


def _lines(report: Report, facts: dict[str, Any]) -> list[tuple[str, str]]:
    settings = ", ".join(f"{key} {value}" for key, value in facts["settings"].items())
    rule = facts["rule"]
    lines = [
        (
            "format",
            f"{facts['format']}, {facts['family']}, {facts['layers']} layers, "
            f"{facts['parameters']:,} parameters",
        ),
        ("task", f"{facts['task']}: {', '.join(facts['labels'])}"),
        ("exits", ", ".join(map(str, facts["exits"]))),
        ("heads", _describe_heads(report.loaded.info.exits)),
        ("rule", f"profile `original`: {rule}" if rule else "the checkpoint states none in full"),
        ("ask for", facts["asked_for"]),
        ("settings", settings),
        ("tokenizer", f"{facts['tokenizer']}, up to {facts['max_tokens']} tokens"),
        *(("dropped", f"{each['keys']}: {each['why']}") for each in facts["dropped"]),
        *(("note", note) for note in facts["notes"]),
        ("original", facts["compared"]),
        ("agreement", _agreement_line(facts)),
        *(("warning", warning) for warning in facts["warnings"]),
    ]
    return [(name, text) for name, text in lines if text]


def _describe_heads(exits: ExitConfig) -> str:
    earlier, last = describe_head(exits.head), describe_head(exits.heads[-1])
    if earlier == last or len(exits.exits) == 1:
        return last
    return f"{earlier}; the last exit's: {last}"


def describe_head(head: AnyHeadConfig) -> str:
    """Describe a head's shape in words."""
    if isinstance(head, AttentionHeadConfig):
        return f"attention of {head.num_heads} heads over all tokens, width {head.width}"
    parts = {"first": "first token", "mean": "mean of the tokens", "tokens": "every token"}
    words = [parts[head.pooling]]
    words += [f"dense layer with {head.activation}"] if head.pooler else []
    words += ["layer norm"] if head.norm is not None else []
    words += ["linear classifier"]
    words += ["predicted error"] if head.uncertainty else []
    return ", ".join(words)


def _agreement(report: Report) -> dict[str, float] | None:
    """Return each exit's agreement with the last exit; None for one exit or a regression."""
    exits = report.loaded.info.exits
    if exits.task == "regression" or len(exits.exits) == 1:
        return None
    shares = (report.answers == report.answers[-1]).mean(axis=1).tolist()
    return {str(layer): round(share, 4) for layer, share in zip(exits.exits, shares, strict=True)}


def _agreement_line(facts: dict[str, Any]) -> str:
    if facts["agreement"] is None:
        return ""
    shares = "  ".join(f"{layer}: {share:.0%}" for layer, share in facts["agreement"].items())
    return f"with the last exit, on built-in samples: {shares}"
