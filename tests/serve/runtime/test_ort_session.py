"""int8 is computed exactly whatever the processor."""

from collections.abc import Callable

import onnxruntime as ort
import pytest

from serve.runtime import ort_session as ort_environment
from serve.runtime.ort_session import plain_options, session_options

ENTRY = "session.x64quantprecision"


@pytest.mark.parametrize("options", [plain_options, session_options])
def test_exact_kernels_are_asked_for_where_the_fast_ones_saturate(
    options: Callable[[int], ort.SessionOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_environment, "has_vnni", lambda: False)
    assert options(1).get_session_config_entry(ENTRY) == "1"
    monkeypatch.setattr(ort_environment, "has_vnni", lambda: True)
    with pytest.raises(RuntimeError):
        options(1).get_session_config_entry(ENTRY)
