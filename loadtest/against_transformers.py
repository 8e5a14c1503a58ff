"""Compares a bundle's fp32 graphs, as the server runs them, with transformers' own classes."""

from pathlib import Path

import torch
from torch import Tensor

from models.checkpoints import comparison, load
from serve.bundle.loader import load_bundle
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.tokenizer import TextEncoder


def compare(bundle_folder: Path, model_folder: Path) -> str:
    """Return in one line what was compared, at full depth.

    Args:
        bundle_folder: with an fp32 variant.
        model_folder: what the bundle was exported from.

    Raises:
        UnusableCheckpoint: something differs; the message shows the first difference.
    """
    bundle = load_bundle(bundle_folder)
    runner = build_runner(bundle, Placement("cpu", "fp32"), available_threads())

    def logits(ids: Tensor, types: Tensor) -> Tensor:
        mask, last = torch.ones_like(ids), len(runner) - 1
        step = runner.start(ids.numpy(), mask.numpy(), types.numpy(), until=last)
        return torch.from_numpy(step.logits)

    tokenizer = TextEncoder(bundle.tokenizer_path, bundle.manifest.max_tokens)
    served = comparison.Served(tokenizer, logits)
    return comparison.compare(model_folder, load(model_folder), served)
