"""The whole model as every other server runs it: the same tokenizer and the same int8 graph.

The servers' files import this beside them, each in an environment of its own, so it knows nothing
of Offramp. `MODEL` names the folder with the graph, the tokenizer and `model.json`.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

MAX_ROWS = 32
WAIT_S = 0.001  # how long an idle server waits for company
_MAX_STRETCH = 1.5  # longest over shortest text of a batch; bounds padding


class WholeModel:
    """Classifies texts with one thread."""

    def __init__(self) -> None:
        folder = Path(os.environ["MODEL"])
        facts = json.loads((folder / "model.json").read_text())
        self.labels, self._pad_id = facts["labels"], facts["pad_id"]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(facts["max_tokens"])
        self._tokenizer.no_padding()
        self.open(folder / "one_graph.onnx")

    def open(self, graph: Path) -> None:
        """Load the graph."""
        import onnxruntime as ort  # which OpenVINO's and Model2Vec's servers lack

        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if "vnni" not in Path("/proc/cpuinfo").read_text():
            # Else the fast int8 kernels saturate.
            options.add_session_config_entry("session.x64quantprecision", "1")
        self._session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._inputs = [given.name for given in self._session.get_inputs()]

    def logits(self, known: dict[str, Any]) -> Any:
        """Return the logits of a batch, whose inputs are given by name."""
        return self._session.run(None, {name: known[name] for name in self._inputs})[0]

    def answer(self, requests: Sequence[str | list[str]]) -> list[dict[str, Any]]:
        """Return an answer for each request, which is a text or several; all share batches."""
        listed = [[texts] if isinstance(texts, str) else texts for texts in requests]
        found = iter(self.classify([text for texts in listed for text in texts]))
        return [{"results": [next(found) for _ in texts]} for texts in listed]

    def classify(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the label of each text and the label's probability."""
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        results: list[dict[str, Any]] = [{}] * len(texts)
        for places in _batches([len(row) for row in ids]):
            logits = self._padded([ids[place] for place in places])
            shares = np.exp(logits - logits.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            for place, row in zip(places, shares, strict=True):
                best = int(row.argmax())
                results[place] = {"label": self.labels[best], "score": float(row[best])}
        return results

    def _padded(self, rows: Sequence[Sequence[int]]) -> Any:
        mask = np.zeros((len(rows), max(map(len, rows))), np.int64)
        ids = np.full_like(mask, self._pad_id)
        for place, row in enumerate(rows):
            mask[place, : len(row)] = 1
            ids[place, : len(row)] = row
        types = np.zeros_like(ids)
        return self.logits({"input_ids": ids, "attention_mask": mask, "token_type_ids": types})


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield places of texts of like length."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place]):
        stretched = bool(batch) and lengths[place] > _MAX_STRETCH * lengths[batch[0]]
        if stretched or len(batch) == MAX_ROWS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
