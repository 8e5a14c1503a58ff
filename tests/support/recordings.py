"""Recordings made by hand: logits and correct answers, without a model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from models.data.examples import Example
from models.quality.analysis import Analysis
from models.quality.costs import LAYERS, layer_costs
from models.quality.model import Model
from models.quality.recorded import Recorded
from serve.policy.ladder import Data
from serve.rules.traits import Traits
from tests.support.traits import two_labels

DATA = Data(name="hand/made.tsv", rows=1, sha256="0" * 64)


def said(
    logits: Any,
    traits: Traits,
    gold: Any = None,
    temperatures: tuple[float, ...] | None = None,
    **more: Any,
) -> Recorded:
    """Return a recording of texts of five tokens; by default without temperatures."""
    logits = np.asarray(logits, np.float32)
    return Recorded(
        traits,
        temperatures or (1.0,) * len(traits.exits),
        logits,
        gold=None if gold is None else np.asarray(gold),
        **{"num_tokens": np.full(logits.shape[1], 5)} | more,
    )


def margins(rows: Sequence[Sequence[float]], gold: Sequence[int]) -> Recorded:
    """Return two labels' logits at layers 2, 4, ...: a positive margin says label 1.

    Args:
        rows: each row's margin at every exit; a large one is sure.
        gold: correct labels.
    """
    ones = np.array(rows, np.float32).T  # (exits, rows)
    layers = tuple(range(2, 2 * len(ones) + 1, 2))
    return said(np.stack([np.zeros_like(ones), ones], axis=-1), two_labels(layers), gold)


def noisy(task: str, seed: int = 0, num_rows: int = 60) -> Recorded:
    """Return random logits of any task at three exits, that come closer to the correct answers."""
    draw = np.random.default_rng(seed)
    labels = {"regression": ("stars",), "token": ("O", "B-PER", "I-PER")}.get(
        task, ("red", "green", "blue")
    )
    traits = Traits((1, 2, 4), labels, task)  # type: ignore[arg-type]
    inner = (num_rows, 7) if task == "token" else (num_rows,)
    if task == "regression":
        gold: Any = draw.uniform(0, 5, num_rows).astype(np.float32)
        truth = gold[:, None]
    elif task == "multi_label":
        gold = (draw.random((num_rows, 3)) > 0.6).astype(np.float32)
        truth = 4 * gold - 2
    else:
        gold = draw.integers(len(labels), size=inner)
        truth = 4 * np.eye(len(labels))[gold]
    noise = draw.standard_normal((3, *truth.shape)) * np.array([4, 3, 2]).reshape(
        -1, *(1,) * truth.ndim
    )
    counted = None
    if task == "token":
        counted = np.arange(7) < draw.integers(2, 8, num_rows)[:, None]
        gold = np.where(counted, gold, -100)
    return said(truth + noise, traits, gold, counted=counted)


def analysed(recorded: Recorded, texts: Sequence[str] = (), **model: Any) -> Analysis:
    """Return an analysis whose texts have as many words as their place says."""
    words = texts or [" ".join(["word"] * (1 + row)) for row in range(recorded.num_rows)]
    lengths = np.array([2 + len(text.split()) for text in words])
    costs = {LAYERS: layer_costs(recorded.traits.exits, recorded.num_rows)}
    known = {"name": "hand-made", "origin": "test", "precision": "fp32", "source": None}
    return Analysis(
        model=Model(**known | {"costs": lambda num_tokens: costs} | model),
        data=DATA,
        examples=[Example(text, None, 0) for text in words],
        recorded=replace(recorded, num_tokens=lengths),
        costs=costs,
    )
