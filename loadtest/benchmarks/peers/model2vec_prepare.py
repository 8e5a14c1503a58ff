"""Distil the encoder into vectors of tokens and train a classifier on them, as Model2Vec documents.

`model2vec_server.py` serves it.
"""

import csv
import json
import os
from pathlib import Path

from model2vec.distill import distill
from model2vec.train import StaticModelForClassification

with open(os.environ["TRAIN"], encoding="utf-8") as file:
    rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
labels = json.loads((Path(os.environ["MODEL"]) / "model.json").read_text())["labels"]
static = distill(os.environ["CHECKPOINT"], device="cpu")
classifier = StaticModelForClassification.from_static_model(model=static)
classifier.fit(
    [row["text_a"] for row in rows], [labels[int(row["label"])] for row in rows], device="cpu"
)
classifier.to_pipeline().save_pretrained(os.environ["PREPARED"])
