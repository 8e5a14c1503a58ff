"""What pretraining has brought: a line for the terminal, and the card of the encoder."""

import shlex
from collections.abc import Sequence
from typing import Any

from models.pretraining.job import PretrainJob
from models.quality.card import (
    FIGURES,
    TRAINING,
    card_bytes,
    hundredths,
    read_card,
    replace_between,
)
from models.quality.page import table
from models.training.provenance import as_repeated
from serve.bundle.calibration import ExitFigures
from serve.bundle.loader import sha256_of

_NEW_CARD = """---
library_name: transformers
pipeline_tag: fill-mask
tags: [early-exit, fill-mask, offramp]
---

# {name}

An encoder whose every layer has learned to name masked words, by `offramp pretrain`: a start for
`offramp train`.
"""
_NAMES = {"accuracy": "masked words named %", "loss": "their loss", "order": "order told %"}


def summary(title: str, figures: Sequence[ExitFigures]) -> str:
    """Return a line of all exits' figures on the held-out texts."""
    parts = [
        f"{_NAMES[metric]}  "
        + "  ".join(f"{each.layer}: {_shown(each, metric)}" for each in figures)
        for metric in figures[0].measured
    ]
    return f"{title}, per exit: {'; '.join(parts)}"


def write_card(
    job: PretrainJob, before: Sequence[ExitFigures], after: Sequence[ExitFigures]
) -> None:
    """Write figures and training into the folder's README.md; its other parts are kept."""
    path, metrics = job.out / "README.md", after[0].measured
    head = [f"{_NAMES[metric]}, {when}" for metric in metrics for when in ("before", "after")]
    rows = [
        [new.layer, *(_shown(each, metric) for metric in metrics for each in (old, new))]
        for old, new in zip(before, after, strict=True)
    ]
    figures = f"On held-out texts:\n\n{table(['exit layer', *head], rows)}"
    texts = ", ".join(f"`{each.name}` (sha256 `{sha256_of(each)[:12]}...`)" for each in job.texts)
    training = [
        f"Texts: {texts}. Sum of the exits' losses in gradient equilibrium, two groups of exits in "
        "turn.",
        *as_repeated(command(job)),
    ]
    card = read_card(path) if path.is_file() else _NEW_CARD.format(name=job.out.name)
    card = replace_between(card, FIGURES, figures)
    path.write_bytes(card_bytes(replace_between(card, TRAINING, "\n".join(training))))


def command(job: PretrainJob) -> str:
    """Return the `offramp pretrain` command line of a run."""
    config = job.config
    options: list[tuple[str, Any]] = [
        ("encoder", job.encoder),
        *(("text", path) for path in job.texts),
        ("out", job.out),
        ("text-columns", ",".join(job.columns.texts)),
        ("epochs", config.epochs),
        ("lr", f"{config.lr:g}"),
        ("batch-size", config.batch_size),
        ("max-tokens", config.max_tokens),
        ("exits", ",".join(map(str, config.exits or ()))),
        ("seed", config.seed),
    ]
    words = [f"--{name} {shlex.quote(str(value))}" for name, value in options if value != ""]
    return " ".join(["offramp pretrain", *words, "--bf16" if config.bf16 else "--no-bf16"])


def _shown(figures: ExitFigures, metric: str) -> str:
    value = figures.value(metric)
    return f"{value:.3f}" if metric == "loss" else hundredths(value)
