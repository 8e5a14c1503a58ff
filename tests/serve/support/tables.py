"""Tables for the tiny bundle: a text with enough of `SURE_WORD` is surely positive, others not."""

from pathlib import Path
from typing import Any

import numpy as np

from serve.bundle.loader import sha256_of
from serve.rules.table import NgramTable
from tests.serve.support.bundles import rewrite_manifest
from tests.support.tiny import LABELS, WORDS
from tests.support.wordpiece import SPECIAL

SURE_WORD = "w7"
SURE_TEXT, UNSURE_TEXT = f"{SURE_WORD} {SURE_WORD} {SURE_WORD} w3", "w1 w2 w3"
BUCKETS, VOCABULARY = 64, len(SPECIAL) + len(WORDS)


def table_rows() -> np.ndarray:
    rows = np.zeros((VOCABULARY + BUCKETS, len(LABELS)), np.float16)
    rows[len(SPECIAL) + WORDS.index(SURE_WORD)] = 0, 0, 6
    return rows


def tiny_table() -> NgramTable:
    return NgramTable(table_rows(), BUCKETS, (0.0,) * len(LABELS))


def add_table(folder: Path, rows: np.ndarray | None = None, **fields: Any) -> Path:
    """Give a copy of the tiny bundle a table; return its folder."""
    np.save(folder / "table.npy", table_rows() if rows is None else rows)
    table = {"file": "table.npy", "buckets": BUCKETS, "bias": [0.0] * len(LABELS), **fields}

    def add(manifest: dict[str, Any]) -> None:
        manifest["table"] = table
        manifest["files"]["table.npy"] = sha256_of(folder / "table.npy")

    rewrite_manifest(folder, add)
    return folder
