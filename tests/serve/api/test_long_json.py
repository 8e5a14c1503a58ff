import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse

from serve.api import long_json
from serve.api.long_json import written

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\u00e9\"", max_size=3), inner),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.text('ab\u00e9"', max_size=3), VALUES))
def test_bytes_are_those_of_a_short_answer(fields: dict[str, Any]) -> None:
    assert written(fields) == JSONResponse(fields).body


def test_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        written({"results": [{"score": float("nan")}]})


def test_encoder_is_never_given_more_than_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def spy(value: Any) -> str:
        seen.append(value)
        return json.dumps(value)

    monkeypatch.setattr(long_json, "_encode", spy)
    results = [{"label": f"label {i}"} for i in range(100)]
    written({"model": "m", "results": results})
    assert seen == ["model", "m", "results", *results]
