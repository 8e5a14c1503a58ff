"""A model whose layers are one layer: rows at any depths run through it together."""

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from serve.bundle.loader import Bundle
from serve.bundle.manifest import (
    ATTENTION_MASK,
    HIDDEN,
    HIDDEN_OUT,
    INPUT_IDS,
    KEEP,
    POOLED,
    TOKEN_TYPE_IDS,
    Precision,
)
from serve.engine.runner import Hidden, Ids, Step
from serve.errors import InvalidBundle
from serve.runtime.cpu_runner import join_on_host, said_by_heads
from serve.runtime.ort_session import AWAKE_S, RUN_OPTIONS, Run, quick_run, session_options
from serve.runtime.process_memory import loading_weights
from serve.runtime.sessions import open_session


class SharedLayers:
    """A `serve.engine.runner.MixedRunner` over the graphs of one precision.

    Attributes:
        precision: of the graphs.
        exits: layers with an exit head, ascending; the last is the depth.
    """

    shared = True

    def __init__(self, bundle: Bundle, precision: Precision, num_threads: int) -> None:
        manifest = bundle.manifest
        graphs = manifest.variants[precision].shared
        if graphs is None:
            raise InvalidBundle(f"bundle {bundle.name}: its layers are not shared")
        self.precision = precision
        self.exits = manifest.exit_layers
        self._num_labels = len(manifest.labels)
        self._per_token = manifest.task == "token"
        self._said = said_by_heads(manifest)
        self._token_types = manifest.token_types
        self._sessions: list[ort.InferenceSession] = []

        def load(file: str, threads: int, awake_s: float = 0.0) -> Run:
            session = open_session(bundle.folder / file, session_options(threads, awake_s))
            self._sessions.append(session)
            return quick_run(session)

        # Heads of one row each are done before other threads are awake; a token's are more work.
        for_heads = num_threads if self._per_token else 1
        with loading_weights():
            self._embed = load(graphs.embed.file, num_threads)
            self._layer = load(graphs.layer.file, num_threads, AWAKE_S)
            active = [head for head in graphs.heads if head.exit_layer in self.exits]
            self._heads = {head.exit_layer: load(head.file, for_heads) for head in active}

    def __len__(self) -> int:
        return self.exits[-1]

    def start(self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids) -> Step:
        inputs = {INPUT_IDS: input_ids}
        if self._token_types:
            inputs[TOKEN_TYPE_IDS] = token_type_ids
        (hidden,) = self._embed([HIDDEN_OUT], inputs, RUN_OPTIONS)
        return Step.of(hidden, self._silence(input_ids.shape))

    def advance_mixed(
        self,
        depths: NDArray[np.int64],
        hidden: Hidden,
        keep: NDArray[np.int64],
        attention_mask: Ids,
    ) -> Step:
        inputs = {HIDDEN: hidden, KEEP: keep, ATTENTION_MASK: attention_mask}
        present = np.flatnonzero(np.bincount(depths + 1))  # layers, once this one has run
        asked = [layer for layer in present.tolist() if layer in self._heads]
        if not asked:
            (passed_on,) = self._layer([HIDDEN_OUT], inputs, RUN_OPTIONS)
            return Step.of(passed_on, self._silence(attention_mask.shape))
        passed_on, pooled = self._layer([HIDDEN_OUT, POOLED], inputs, RUN_OPTIONS)
        if len(present) == 1:
            return Step.of(passed_on, self._ask(asked[0], pooled))
        everything = self._silence(attention_mask.shape)
        for layer in asked:
            rows = np.flatnonzero(depths + 1 == layer)
            for values, own in zip(everything, self._ask(layer, pooled[rows]), strict=True):
                values[rows] = own
        return Step.of(passed_on, everything)

    def join(self, parts: Sequence[tuple[Hidden, NDArray[np.int64], int]]) -> Hidden:
        return join_on_host(parts)

    def _ask(self, layer: int, pooled: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Return the head's logits and, if it has learned it, its uncertainty."""
        return self._heads[layer](self._said, {POOLED: pooled}, RUN_OPTIONS)

    def _silence(self, shape: tuple[int, ...]) -> list[NDArray[np.float32]]:
        """Return likewise what rows are told to which no head speaks: NaN.

        Args:
            shape: (rows, tokens).
        """
        rows = shape if self._per_token else shape[:1]
        shapes = [(*rows, self._num_labels), shape[:1]][: len(self._said)]
        return [np.full(each, np.nan, np.float32) for each in shapes]
