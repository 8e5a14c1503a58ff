"""Changing a bundle that was copied for the purpose."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serve.bundle.loader import CALIBRATION, MANIFEST, sha256_of

Document = dict[str, Any]


def rewrite_manifest(
    folder: Path,
    change: Callable[[Document], Any] = lambda manifest: None,
    calibration: Any = None,
) -> None:
    """Change a bundle's manifest in place, and give it a calibration, listed with its hash."""
    path = folder / MANIFEST
    manifest = json.loads(path.read_bytes())
    if calibration is not None:
        (folder / CALIBRATION).write_text(json.dumps(calibration))
        manifest["files"][CALIBRATION] = sha256_of(folder / CALIBRATION)
    change(manifest)
    path.write_text(json.dumps(manifest))
