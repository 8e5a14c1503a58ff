"""Quantize the whole model's fp32 graph by NNCF, for `openvino_server.py`."""

import csv
import os
from pathlib import Path

import nncf
import numpy as np
import openvino
from tokenizers import Tokenizer

NUM_TEXTS = 300  # NNCF's default

model = openvino.convert_model(Path(os.environ["FP32"]) / "one_graph.onnx")
tokenizer = Tokenizer.from_file(str(Path(os.environ["MODEL"]) / "tokenizer.json"))
tokenizer.no_padding()
names = [given.any_name for given in model.inputs]


def inputs(text: str) -> dict[str, np.ndarray]:
    """Return the graph's inputs for a text."""
    ids = np.array([tokenizer.encode(text).ids])
    known = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    return {name: known[name] for name in names}


with open(os.environ["TRAIN"], encoding="utf-8") as file:
    rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
texts = [row["text_a"] for row in rows[:: len(rows) // NUM_TEXTS]]
quantized = nncf.quantize(
    model,
    nncf.Dataset(texts, inputs),
    model_type=nncf.ModelType.TRANSFORMER,
    subset_size=NUM_TEXTS,
)
openvino.save_model(quantized, Path(os.environ["PREPARED"]) / "int8.xml")
