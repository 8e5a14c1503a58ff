"""Hand-written bundles with a small model in front of a large one, which share hardly anything."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve.bundle.loader import MANIFEST, TOKENIZER, sha256_of
from serve.rules.traits import Task
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.task_bundles import EXITS, Kind, write_task_bundle
from tests.support.tiny import WORDS
from tests.support.wordpiece import wordpiece

MOST_TOKENS = 12
Change = Callable[[dict[str, Any]], Any]


def write_small(
    folder: Path,
    task: Task = "single_label",
    same_tokens: bool = False,
    max_tokens: int = MOST_TOKENS,
) -> Path:
    """Write a small model: labels in another order, other token ids unless told, short texts."""
    small = write_task_bundle(folder, Kind(task), "little", sure=40.0, alike=True)
    if not same_tokens:
        wordpiece(WORDS[::-1]).save(str(small / TOKENIZER))

    def change(manifest: dict[str, Any]) -> None:
        manifest["labels"] = manifest["labels"][::-1]
        manifest["max_tokens"] = max_tokens
        manifest["files"][TOKENIZER] = sha256_of(small / TOKENIZER)

    rewrite_manifest(small, change)
    return small


def put_in_front(large: Path, small: Path, **fields: Any) -> Path:
    """Copy a small model's bundle into a large one's; return the large one's folder."""
    sha256 = sha256_of(small / MANIFEST)
    exits = [each["layer"] for each in json.loads((small / MANIFEST).read_bytes())["exits"]]
    facts = {"exits": exits, "temperatures": [1.5] * len(exits), "layer_cost": 0.25}
    place = f"small-{sha256[:12]}"
    shutil.copytree(small, large / place)

    def change(manifest: dict[str, Any]) -> None:
        manifest["small"] = {"name": small.name, "sha256": sha256, **facts, **fields}
        manifest["files"][f"{place}/{MANIFEST}"] = sha256

    rewrite_manifest(large, change)
    return large


def write_cascade(folder: Path, task: Task = "single_label", same_tokens: bool = False) -> Path:
    """Write a large model with a small one in front; both have exits after layers 1, 2 and 4."""
    large = write_task_bundle(folder, Kind(task), "tiny", sure=16.0)
    return put_in_front(large, write_small(folder, task, same_tokens))


NUM_SMALL_EXITS = len(EXITS)
