"""What a run computes on, and in which precision."""

import torch

from models.errors import TrainingFailed


def available(device: str) -> str:
    """Return `cpu` or `cuda` for the --device option.

    Raises:
        TrainingFailed: there is no GPU, and one was asked for.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise TrainingFailed(
            "--device cuda: this PyTorch finds no GPU that it can use; leave --device out, or put "
            "driver and PyTorch right"
        )
    return device


def has_bf16(device: str) -> bool:
    """Return whether the device has bfloat16 instructions; emulation is slower than float32."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(torch.cpu._is_avx512_bf16_supported())
