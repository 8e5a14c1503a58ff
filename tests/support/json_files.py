"""Changing what a folder's JSON files say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a JSON object in place; a file that is missing is an empty one."""
    document = json.loads(path.read_bytes()) if path.is_file() else {}
    change(document)
    path.write_text(json.dumps(document))
