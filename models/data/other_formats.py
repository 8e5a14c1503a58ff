"""Data files of formats that are not read: how to convert them."""

from collections.abc import Iterable
from pathlib import Path

from models.errors import UnusableData

_BY_PANDAS = "python -c \"import pandas; pandas.{read}('{path}').to_json('{stem}.jsonl', "
_TO_JSON_LINES = "orient='records', lines=True, force_ascii=False)\""
# The `datasets` library writes streams of Arrow, which pandas does not read.
_BY_DATASETS = (
    "python -c \"import datasets; datasets.Dataset.from_file('{path}').to_json('{stem}.jsonl', "
    'force_ascii=False)"'
)
# By suffix: how a file that is no text is converted.
_OTHERS = {".arrow": _BY_DATASETS} | {
    suffix: _BY_PANDAS.replace("{read}", read) + _TO_JSON_LINES
    for suffix, read in (
        (".parquet", "read_parquet"),
        (".feather", "read_feather"),
        (".xlsx", "read_excel"),
        (".xls", "read_excel"),
        (".pkl", "read_pickle"),
    )
}
_PACKED = (".gz", ".bz2", ".xz", ".zip", ".zst")


def other_format(path: Path, read: Iterable[str]) -> UnusableData:
    """Return the error for a file whose suffix is none of those that are read."""
    suffix = path.suffix.lower()
    if suffix in _OTHERS:
        command = _OTHERS[suffix].format(path=path, stem=path.with_suffix(""))
        return UnusableData(f"{path}: {suffix} is not read; convert it: {command}")
    if suffix in _PACKED:
        return UnusableData(f"{path}: packed files are not read; unpack it")
    return UnusableData(f"{path}: the name must end in {', '.join(read)}")
