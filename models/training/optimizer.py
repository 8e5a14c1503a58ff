"""Learning rate over time, and parameter groups."""

from typing import Any

from models.encoder_with_heads import EncoderWithHeads

WARM_UP_SHARE = 0.06


def rate_factor(step: int, num_steps: int) -> float:
    """Return a step's factor on the peak learning rate: linear warm-up, linear decay."""
    warm_up = max(1, round(WARM_UP_SHARE * num_steps))
    return min((step + 1) / warm_up, (num_steps - step) / max(1, num_steps - warm_up))


def parameter_groups(
    model: EncoderWithHeads, weight_decay: float, head_lr_factor: float
) -> list[dict[str, Any]]:
    """Return the trainable parameters as groups for AdamW.

    Args:
        model: frozen parameters are left out.
        weight_decay: for matrices; vectors (biases, norms) do not decay.
        head_lr_factor: stored as `factor` in the heads' groups; the encoder's groups have 1.
    """
    groups = []
    for module, factor in ((model.encoder, 1.0), (model.heads, head_lr_factor)):
        trainable = [p for p in module.parameters() if p.requires_grad]
        matrices = [p for p in trainable if p.ndim > 1]
        vectors = [p for p in trainable if p.ndim <= 1]
        groups.append({"params": matrices, "weight_decay": weight_decay, "factor": factor})
        groups.append({"params": vectors, "weight_decay": 0.0, "factor": factor})
    return [group for group in groups if group["params"]]
