"""The sets of values in matrix.yaml."""

from pathlib import Path
from typing import Any

import pytest
import yaml

Values = dict[str, Any]

_SETS: dict[str, dict[str, Values]] = yaml.safe_load(
    Path(__file__).with_name("matrix.yaml").read_text()
)
BOTH, RAYSERVICE, DEPLOYMENT = _SETS["both"], _SETS["rayservice"], _SETS["deployment"]
POLICIES: Values = BOTH["policies"]["policies"]
GPU, DOWNLOAD, CLOSED, MONITORING = (
    BOTH[name] for name in ("gpu", "download", "closed", "monitoring")
)

CASES: dict[str, Values] = {f"rayservice: {n}": v for n, v in (BOTH | RAYSERVICE).items()}
CASES |= {f"deployment: {n}": {**v, "mode": "deployment"} for n, v in (BOTH | DEPLOYMENT).items()}
every_case = pytest.mark.parametrize("values", CASES.values(), ids=CASES)
