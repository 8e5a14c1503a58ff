"""Bodies with tensors behind their JSON: damaged, compressed, too large, or of random bytes."""

import gzip
import json
import logging
import time
import zlib
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.api.conftest import StartServer
from tests.serve.support.live_server import LiveServer, raw_request
from tests.serve.support.openapi_fuzz import SHORT, check_unharmed
from tests.support.patience import until

INFER = "/v2/models/tiny/infer"
LENGTH = "Inference-Header-Content-Length"


def element(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def described(size: Any, **fields: Any) -> dict[str, Any]:
    parameters = {"binary_data_size": size}
    return {"name": "TEXT", "shape": [1], "datatype": "BYTES", "parameters": parameters, **fields}


def send(server: LiveServer, head: bytes, behind: bytes, **headers: str) -> httpx.Response:
    given = {LENGTH: str(len(head)), **headers}
    return server.http.post(INFER, content=head + behind, headers=given)


def refused(response: httpx.Response) -> tuple[int, str]:
    assert list(response.json()) == ["error"]
    return response.status_code, response.json()["error"]


def of_ids(size: Any, shape: list[int], **fields: Any) -> dict[str, Any]:
    return described(size, name="input_ids", datatype="INT64", shape=shape, **fields)


WHOLE = element(b"w1")


@pytest.mark.parametrize(
    ("given", "behind", "said"),
    [
        (described(6), b"\x02\0\0\0w", "'TEXT': binary_data_size is 6, but only 5"),
        (described(5), b"\x02\0\0\0w", "TEXT[0]: the bytes end before"),
        (described(9), b"The movie", "TEXT[0]: the bytes end before"),
        (described(6), b"\0\0\0\x02w1", "TEXT[0]: the bytes end before"),
        (described(3), b"\x02\0\0", "TEXT[0]: the bytes end before"),
        (described(4), b"\xff\xff\xff\xff", "TEXT[0]: the bytes end before"),
        (described(6, shape=[2]), WHOLE, "TEXT[1]: the bytes end before"),
        (described(6), WHOLE + b"?", "1 bytes behind the JSON belong to no input"),
        (described(7), WHOLE + b"?", "TEXT: 1 bytes are left"),
        (described(6), element(b"w\xff"), "TEXT[0]: is not UTF-8 at byte 1"),
        (described(6, shape=[0]), WHOLE, "TEXT: must have 1 to 10000 rows"),
        (described(6, shape=[10**9]), WHOLE, "TEXT: must have 1 to 10000 rows"),
        (described(6, shape=[1, 10**4299]), WHOLE, "TEXT: the shape"),
        (described(6, shape=[1, 2]), WHOLE, "TEXT: the shape"),
        (described(6, shape=[True]), WHOLE, "inputs[0].shape[0]:"),
        (described(6, shape=[1] * 9), WHOLE, "inputs[0].shape:"),
        (described(6, data=["w1"]), WHOLE, "'TEXT': give data or binary_data_size"),
        (described(6, extra=1), WHOLE, "inputs[0].extra:"),
        (described(-1), b"", "'TEXT': binary_data_size must be"),
        (described(True), b"", "'TEXT': binary_data_size must be"),
        (described(10**30), b"", "'TEXT': binary_data_size is 1000"),
        (described(None), b"", "'TEXT': give data, or binary_data_size"),
        (described(None, data=[1]), b"", "TEXT[0]: must be a text"),
        (described(None, data=[["a"], "b"]), b"", "TEXT: the shape [1] has 1 elements"),
        (described(None, data=[["a", "b"]], shape=[1, 1]), b"", "'TEXT': the data is not nested"),
        (of_ids(9, [1, 1]), bytes(9), "input_ids: the shape [1, 1] takes 8 bytes"),
        (of_ids(8, [1, 2]), bytes(8), "input_ids: the shape [1, 2] takes 8 bytes"),
        (of_ids(None, [1, 1], data=[1.0]), b"", "input_ids: must hold integers only"),
        (of_ids(None, [1, 1], data=[2**64]), b"", "input_ids: has a number of more than 64 bits"),
        (
            {**described(0), "parameters": {"shared_memory_region": "x"}},
            b"",
            "'TEXT': there is no shared memory",
        ),
        ({**described(0), "parameters": {"x": 1}}, b"", "'TEXT': there is no parameter 'x'"),
    ],
)
def test_tensors_that_are_not_as_declared_are_refused(
    server: LiveServer, given: Any, behind: bytes, said: str
) -> None:
    status, message = refused(send(server, json.dumps({"inputs": [given]}).encode(), behind))
    assert (status, message[: len(said)]) == (400, said)


def test_json_that_ends_elsewhere_is_named_with_its_length(server: LiveServer) -> None:
    head = json.dumps({"inputs": [described(6)]}).encode()
    for length, said in ((str(len(head) - 1), f"{len(head) - 1} by {LENGTH}"), (None, LENGTH)):
        headers = {LENGTH: length} if length else {}
        response = server.http.post(INFER, content=head + element(b"w1"), headers=headers)
        status, message = refused(response)
        assert status == 400
        assert message.startswith("the body is not JSON: ")
        assert f"{said})" in message


HEAD = json.dumps({"inputs": [described(6)]}).encode() + WHOLE
LENGTHS = ("-1", "x", "", "1.0", "\u0661", "999999", "9" * 5000)
NO_REQUESTS = (b"", b" ", b"[]", b"{", b"\xff", b'{"inputs": []}', b'{"inputs": 1, "inputs": 2}')


@pytest.mark.parametrize(
    ("body", "length"),
    [
        *((HEAD, length) for length in LENGTHS),
        *((body, None) for body in (*NO_REQUESTS, b"[" * 9999)),
    ],
)
def test_bodies_that_are_no_inference_request_are_refused(
    server: LiveServer, body: bytes, length: str | None
) -> None:
    headers = {} if length is None else {LENGTH: length.encode()}
    assert refused(server.http.post(INFER, content=body, headers=headers))[0] == 400


def test_raw_bodies_must_be_texts(server: LiveServer) -> None:
    assert refused(send(server, b"", b"\xff"))[0] == 400
    assert refused(send(server, b"", b""))[0] == 422


def test_unpacked_bodies_are_bounded_and_whole(start_server: StartServer) -> None:
    server = start_server(max_body_bytes=20_000)
    head = json.dumps({"inputs": [described(6)]}).encode()
    whole = head + element(b"w1")

    def ask(body: bytes, encoding: str) -> httpx.Response:
        headers = {"Content-Encoding": encoding, LENGTH: str(len(head))}
        return server.http.post(INFER, content=body, headers=headers)

    bomb = gzip.compress(bytes(10**7))
    assert len(bomb) < 20_000
    assert refused(ask(bomb, "gzip"))[0] == 413
    for encoding, packed in (("gzip", gzip.compress(whole)), ("deflate", zlib.compress(whole))):
        assert ask(packed, encoding).status_code == 200
        assert refused(ask(packed[:-1], encoding))[0] == 400
        assert refused(ask(packed + b"x", encoding))[0] == 400
        assert refused(ask(whole, encoding))[0] == 400
    assert refused(ask(whole, "br"))[0] == 415
    assert ask(gzip.compress(whole.ljust(20_000)), "GZIP").status_code == 400  # bytes left over
    assert ask(gzip.compress(whole.ljust(20_001)), "gzip").status_code == 413


def test_unpacked_bodies_count_among_those_that_are_held(start_server: StartServer) -> None:
    server = start_server(max_body_bytes=200_000, max_buffered_bytes=200_000)
    other = raw_request("/v1/classify", b"{", size=150_000)
    packed = gzip.compress(b"w1 " * 60_000)
    headers = {"Content-Encoding": "gzip", LENGTH: "0"}

    def status() -> int:
        return server.http.post(INFER, content=packed, headers=headers).status_code

    def status_beside_another() -> int:
        with server.half_sent(other):
            time.sleep(0.1)  # the other one may arrive too late, and would be refused itself
            return status()

    assert status() == 422  # too long a text
    until(lambda: status_beside_another() == 429)


NAMES = st.sampled_from(["TEXT", "TEXT_PAIR", "input_ids", "attention_mask", "token_type_ids", "x"])
SIZES = st.one_of(st.integers(0, 40), st.sampled_from([-1, None, True, "4", 2**31, 2**64, 10**400]))
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, -1, 10_000, 2**40]), max_size=3)
ELEMENTS = st.one_of(
    st.lists(st.sampled_from(["w1", "w2 w3", "", "\ud800"]), min_size=1, max_size=3),
    st.lists(st.integers(-1, 2**64), max_size=3),
    st.recursive(st.integers(0, 9), lambda inner: st.lists(inner, max_size=3), max_leaves=9),
)
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 9), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": draw(NAMES),
        "datatype": draw(st.sampled_from(["BYTES", "INT64", "FP32"])),
        "shape": draw(SHAPES),
    }
    if draw(st.booleans()):
        made["parameters"] = {"binary_data_size": draw(SIZES)}
    else:
        made["data"] = draw(ELEMENTS)
    return made


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Return JSON and what stands behind it; of either, bytes may be lost or replaced."""
    texts = draw(st.lists(st.binary(max_size=8), max_size=3))
    behind = b"".join(map(element, texts))
    fitting = described(len(behind), shape=[len(texts), 1])
    request: dict[str, Any] = {
        "inputs": draw(st.one_of(st.just([fitting]), st.lists(tensors(), max_size=3), JUNK))
    }
    for name in ("parameters", "outputs", "id"):
        if not draw(st.integers(0, 4)):
            request[name] = draw(JUNK)
    head, behind = json.dumps(request).encode(), draw(st.one_of(st.just(behind), st.binary()))
    if not draw(st.integers(0, 5)):
        place = draw(st.integers(0, len(head)))
        head = head[:place] + draw(st.binary(max_size=5)) + head[place + draw(st.integers(0, 5)) :]
    return head, behind[: draw(st.one_of(st.just(len(behind)), st.integers(0, 40)))]


def test_no_tensors_make_the_server_fail_or_hang(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server()
    packers = {"": lambda body: body, "gzip": gzip.compress, "deflate": zlib.compress}

    @settings(derandomize=settings.default.max_examples <= SHORT, database=None)
    @given(
        sent=bodies(),
        off=st.one_of(st.just(0), st.integers(-9, 9)),
        encoding=st.sampled_from(["", "", "", "gzip", "deflate"]),
        lie=st.integers(0, 9),
    )
    def check(sent: tuple[bytes, bytes], off: int, encoding: str, lie: int) -> None:
        head, behind = sent
        body = head + behind
        headers = {LENGTH: str(len(head) + off)} if lie else {}
        if encoding:
            headers["Content-Encoding"] = encoding
            body = packers[encoding](body) if lie != 1 else body
        response = server.http.post(INFER, content=body, headers=headers)
        assert response.status_code in (200, 400, 422), response.text
        if response.status_code != 200:
            assert isinstance(response.json()["error"], str)

    check()
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == []
    check_unharmed(server)
