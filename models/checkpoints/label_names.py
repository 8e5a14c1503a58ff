"""The label names in a checkpoint's config, by id."""

from collections import Counter
from pathlib import Path
from typing import Any

from models.errors import UnusableCheckpoint
from models.model_files import CONFIG


def label_names(config: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """Return the labels in the order of their ids; LABEL_0, LABEL_1, ... if they have no names.

    As in transformers, `id2label` decides, and `num_labels` where it is missing. Old versions of
    transformers wrote a default `id2label` of two labels beside a `num_labels` of more.

    Raises:
        UnusableCheckpoint: `id2label` gives no order, or another key contradicts it.
    """
    where = f"{folder}/{CONFIG}"
    stated, named, ids = config.get("num_labels"), config.get("id2label"), _ids(config, where)
    if named is None:
        if ids.keys() - set(numbered(len(ids))):
            raise UnusableCheckpoint(
                f"{where}: label2id names labels, and id2label is missing, which transformers "
                'reads. Write it: {"0": first name, "1": second name, ...}'
            )
        return numbered(stated or 2)
    names = _in_order(named, where)
    if stated not in (None, len(names)):
        if names == numbered(len(names)):
            return numbered(stated)
        raise UnusableCheckpoint(
            f"{where}: num_labels is {stated}, and id2label names {len(names)}; remove num_labels "
            "if the names are right"
        )
    for i, name in enumerate(names):
        if ids.get(name, i) != i:
            raise UnusableCheckpoint(
                f"{where}: {name!r} is label {i} in id2label and {ids[name]!r} in label2id; "
                "correct the wrong one, or remove label2id"
            )
    return names


def _in_order(named: Any, where: str) -> tuple[str, ...]:
    """Return the values of `id2label` by key; `check_sizes` has seen that the keys are ids."""
    by_id = {int(key): name for key, name in named.items()}
    missing = next((i for i in range(len(named)) if i not in by_id), None)
    if missing is not None or not named:
        raise UnusableCheckpoint(
            f"{where}: id2label has {len(named)} names and none for label {missing or 0}; expected "
            "the ids from 0 on, without a gap"
        )
    for i, name in by_id.items():
        if isinstance(name, bool) or not isinstance(name, str | int | float) or name == "":
            raise UnusableCheckpoint(
                f"{where}: id2label has {_short(name)} for label {i}; expected a name"
            )
    names = tuple(str(by_id[i]) for i in range(len(by_id)))
    twice, count = Counter(names).most_common(1)[0]
    if count > 1:
        places = ", ".join(str(i) for i, name in enumerate(names) if name == twice)
        raise UnusableCheckpoint(
            f"{where}: id2label names {_short(twice)} for the labels {places}; answers could not "
            "be told apart: give each its own name"
        )
    return names


def _ids(config: dict[str, Any], where: str) -> dict[str, Any]:
    """Return `label2id`, with ids as numbers where they are written as text."""
    stated = config.get("label2id")
    if stated is None:
        return {}
    if not isinstance(stated, dict):
        raise UnusableCheckpoint(
            f"{where}: label2id is {_short(stated)}; expected an id for each name"
        )
    return {
        name: int(i) if isinstance(i, str) and i.isdecimal() else i for name, i in stated.items()
    }


def numbered(count: int) -> tuple[str, ...]:
    """Return the names that transformers gives to labels without names."""
    return tuple(f"LABEL_{i}" for i in range(count))


def _short(value: Any) -> str:
    return repr(value)[:80]
