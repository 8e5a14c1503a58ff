"""A table in a model folder: `table.npy`, and what is said of it in `table.json`."""

import io
from pathlib import Path

import numpy as np

from models.model_folder import as_file, read_document
from models.table.learn import Learned
from serve.bundle.manifest import Table

TABLE, TABLE_FACTS = "table.npy", "table.json"


def facts_of(learned: Learned) -> Table:
    """Return what a manifest says of a table."""
    return Table(
        file=TABLE, buckets=learned.buckets, bias=learned.bias, temperature=learned.temperature
    )


def rows_of(learned: Learned) -> bytes:
    """Return the content of the table's file."""
    file = io.BytesIO()
    np.save(file, learned.rows)
    return file.getvalue()


def write_table(folder: Path, learned: Learned | None) -> None:
    """Write a model's table; None removes that of an earlier training."""
    if learned is None:
        for name in (TABLE, TABLE_FACTS):
            (folder / name).unlink(missing_ok=True)
        return
    (folder / TABLE).write_bytes(rows_of(learned))
    (folder / TABLE_FACTS).write_text(as_file(facts_of(learned)), "utf-8")


def read_facts(folder: Path) -> Table | None:
    """Return what is said of a model's table, if it has one.

    Raises:
        TrainingFailed: it cannot be read.
    """
    return read_document(Table, folder, TABLE_FACTS)
