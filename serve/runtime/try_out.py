"""One run of a loaded model against its manifest: what a file's hash cannot tell."""

import numpy as np

from serve.bundle.loader import MANIFEST, Bundle
from serve.bundle.manifest import Manifest, Precision
from serve.engine.runner import Hidden, ModelRunner, StepOutput
from serve.engine.warm_up import steps
from serve.errors import InvalidBundle

# A longer text is not tried: attention alone would take gigabytes.
MOST_TOKENS = 2048


def try_out(runner: ModelRunner, bundle: Bundle, precision: Precision) -> None:
    """Run the longest text with the largest ids through every exit, and compare the shapes.

    On a GPU an id beyond the embeddings is no error of ONNX Runtime and is not found.

    Raises:
        InvalidBundle: the graphs cannot run it, or what they give is not what the manifest says.
    """
    manifest = bundle.manifest
    where = f"{bundle.folder}: {precision}"
    num_tokens = min(manifest.max_tokens, MOST_TOKENS)
    # Not the padding's id, by which some models count positions.
    largest = (manifest.vocab_size or manifest.pad_id + 2) - 1
    ids = np.full((1, num_tokens), largest, np.int64)
    types = np.full_like(ids, manifest.type_vocab_size - 1 if manifest.token_types else 0)
    walk = steps(runner, ids, np.ones_like(ids), types)
    for layer in manifest.exit_layers:
        try:
            output = next(walk)
        except Exception as error:  # ONNX Runtime's errors have no common type
            # The innermost of nested nodes has the reason.
            reason = (str(error) or repr(error)).splitlines()[0].rpartition("Status Message: ")[2]
            raise InvalidBundle(
                f"{where}: the graphs fail at exit {layer} on a text of {num_tokens} tokens "
                f"with ids up to {largest} and types up to {types.max()}, which {MANIFEST} "
                f"allows: {reason}"
            ) from None
        for name, found, expected in _shapes(output, manifest, num_tokens):
            if found != expected:
                raise InvalidBundle(
                    f"{where}: exit {layer} gives {name} of shape {found}; by {MANIFEST} "
                    f"it is {expected}"
                )


def _shapes(
    output: StepOutput, manifest: Manifest, num_tokens: int
) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Return (name, shape found, shape expected) of what an exit gives for one text."""
    per_token = (num_tokens,) if manifest.task == "token" else ()
    labels = (1, *per_token, len(manifest.labels))
    shapes = [("logits", output.logits.shape, labels)]
    if output.uncertainty is not None:
        shapes.append(("uncertainty", output.uncertainty.shape, (1,)))
    if output.hidden is not None:
        hidden = (1, num_tokens, manifest.width)
        shapes.append(("hidden states", _shape(output.hidden), hidden))
    return shapes


def _shape(hidden: Hidden) -> tuple[int, ...]:
    """Return the shape of hidden states: of numpy a tuple, of an `OrtValue` a method."""
    return tuple(hidden.shape() if callable(hidden.shape) else hidden.shape)
