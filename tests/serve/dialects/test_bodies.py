"""Bodies of every dialect with fields changed, lost, added, or bytes damaged.

The binary tensors of the Open Inference Protocol have `test_oip_bodies.py`.
"""

import copy
import json
import logging
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.serve.api.conftest import StartServer
from tests.serve.support.openapi_fuzz import SHORT, check_unharmed
from tests.serve.support.spoken import (
    BASIC,
    CONTENTS,
    HF,
    KSERVE,
    MODERATIONS,
    PARAMETERS,
    TEI,
    V1,
    VLLM,
    message_of,
)

RULE = {"rule": "entropy", "threshold": 0.5}
WINDOWS = {"stride": 8, "combine": "any"}
FLAG = {"negative": 0.5}
MIB = 2**20

OWN = {"exit": RULE, "timeout_ms": 60_000, "priority": "low"}
# A body of each dialect with everything in it.
BODIES: dict[str, dict[str, Any]] = {
    V1: {
        "inputs": ["w1", {"text": "w2", "text_pair": "w3"}, {"input_ids": [2, 5, 3]}],
        **OWN,
        "flag": FLAG,
        "windows": WINDOWS,
        "return": ["logits"],
    },
    HF: {
        "inputs": ["w1", "w2 w3"],
        "parameters": {"top_k": 2, "function_to_apply": "softmax", "truncation": True, **OWN},
    },
    TEI: {
        "inputs": [["w1", "w2"], ["w3"]],
        "truncate": True,
        "truncation_direction": "Right",
        "raw_scores": False,
    },
    VLLM: {"model": "tiny", "input": ["w1", [2, 5, 3]], "priority": 1},
    KSERVE: {"instances": ["w1", {"text": "w2", "text_pair": "w3"}], "parameters": OWN},
    CONTENTS: {
        "contents": ["w1", "w2 " * 200],
        "detector_params": {"threshold": 0.5, "flag": FLAG, "windows": WINDOWS, **OWN},
    },
    BASIC: {
        "texts": ["w1", "w2 w3"],
        "input_type": "request",
        "tools": None,
        PARAMETERS: {"flag": FLAG, "unchecked": ["tools"], **OWN},
    },
    MODERATIONS: {"input": [{"type": "text", "text": "w1"}], "threshold": 0.5, "flag": FLAG, **OWN},
}
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=9),
    st.sampled_from(["w1", "\ud800", "fast", "w1 " * 200, 10**400]),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=6,
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "X-Offramp-Exit": st.sampled_from(["fast", "{", '{"rule": "layer", "layer": 1}', "[]"]),
        "X-Offramp-Timeout-Ms": st.sampled_from(["60000", "0", "x", "1e9", "nan"]),
        "X-Offramp-Priority": st.sampled_from(["high", "now"]),
    },
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return every container in a document, with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


@st.composite
def changed(draw: st.DrawFn, body: dict[str, Any]) -> bytes:
    """Return a body after some changes."""
    made = copy.deepcopy(body)
    for _ in range(draw(st.integers(0, 3))):
        if not (found := list(places(made))):
            break
        holder, key = draw(st.sampled_from(found))
        kind = draw(st.sampled_from(["change", "change", "lose", "add", "repeat"]))
        if kind == "lose":
            del holder[key]
        elif kind == "add" and isinstance(holder, dict):
            holder[draw(st.text(max_size=9))] = draw(JUNK)
        elif kind == "repeat":
            holder[key] = [holder[key]] * draw(st.sampled_from([2, 300]))
        else:
            holder[key] = draw(JUNK)
    sent = json.dumps(made).encode()
    assume(len(sent) < MIB)  # the client keeps bodies in the memory that is looked at
    if draw(st.integers(0, 5)):
        return sent
    place = draw(st.integers(0, len(sent)))
    return sent[:place] + draw(st.binary(max_size=5)) + sent[place + draw(st.integers(0, 5)) :]


@pytest.mark.parametrize("path", BODIES)
def test_no_body_makes_the_server_fail_or_grow(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    server, process = start_server(), psutil.Process()
    assert server.http.post(path, json=BODIES[path]).status_code == 200
    statuses: list[int] = []
    sizes: list[int] = []
    most = settings.default.max_examples

    @settings(derandomize=most <= SHORT, database=None, max_examples=max(most // 8, 50))
    @given(sent=changed(BODIES[path]), headers=HEADERS)
    def check(sent: bytes, headers: dict[str, str]) -> None:
        given = {"Content-Type": "application/json", **headers}
        response = server.http.post(path, content=sent, headers=given)
        statuses.append(response.status_code)
        # 504: a timeout of a millisecond is one that a body may ask for.
        assert response.status_code in (200, 400, 404, 413, 422, 501, 504), response.text
        if response.status_code != 200:
            assert message_of(path, response)
        if len(statuses) % 500 == 0:
            sizes.append(process.memory_info().rss)

    check()
    assert 200 in statuses
    assert {*statuses} & {400, 422}
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == []
    # The first examples warm caches up; Hypothesis itself keeps a little of each.
    assert not sizes or sizes[-1] - sizes[0] < 150 * MIB
    check_unharmed(server)
