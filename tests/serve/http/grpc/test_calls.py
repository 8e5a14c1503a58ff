"""Keys, bounds, cancelling, metrics and log lines of calls."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import serve.access.held_bytes
from serve.access.keys import Scope
from serve.logs import ACCESS_LOG
from tests.serve.http.grpc.conftest import asked, failure, stub
from tests.serve.http.grpc.raw_http2 import raw_http2
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, serving_grpc
from tests.support.patience import until
from tests.support.tiny import WORDS

INFER = "/inference.GRPCInferenceService/ModelInfer"
LONG = [" ".join(WORDS[:60])] * 64


class Keys:
    """A file of keys; each has the metadata that sends it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.json"
        self._secrets: dict[str, str] = {}

    def add(self, name: str, scope: Scope, **limits: Any) -> None:
        self._secrets[name] = make_key(self.file.parent, scope, name=name, **limits)

    def bearer(self, name: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._secrets[name]}"),)

    def api_key(self, name: str) -> tuple[tuple[str, str], ...]:
        return (("x-api-key", self._secrets[name]),)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    keys = Keys(tmp_path_factory.mktemp("keys"))
    keys.add("user", "classify")
    keys.add("viewer", "read")
    keys.add("slow", "classify", rows_per_s=1)
    keys.add("wrong", "classify", rows_per_s=1)
    return keys


@pytest.fixture(scope="module")
def guarded(bundle_folder: Path, keys: Keys) -> Iterator[Any]:
    with (
        serving_grpc(bundle_folder, keys=keys.file, open_metrics=True, access_log=True) as live,
        stub(live.grpc_address) as calls,
    ):
        calls.live = live
        yield calls


def test_keys_are_needed_and_have_scopes(guarded: Any, keys: Keys) -> None:
    user, viewer = keys.bearer("user"), keys.bearer("viewer")
    for metadata, code, error in (
        ((), grpc.StatusCode.UNAUTHENTICATED, "unauthorized"),
        ((("authorization", "Bearer wrong"),), grpc.StatusCode.UNAUTHENTICATED, "unauthorized"),
        (viewer, grpc.StatusCode.PERMISSION_DENIED, "forbidden"),
        ((*user, *viewer), grpc.StatusCode.INVALID_ARGUMENT, "several_keys"),
    ):
        found, trailing = failure(guarded.ModelInfer, asked(["w1"]), metadata=metadata)
        assert (found, trailing["x-offramp-error"]) == (code, error)
    for metadata in (user, keys.api_key("user")):
        assert guarded.ModelInfer(asked(["w1"]), metadata=metadata).model_name == "tiny"


def test_message_without_a_key_is_not_read(guarded: Any) -> None:
    class Message:
        def SerializeToString(self) -> bytes:
            return b"\xff" * 1000

    with grpc.insecure_channel(guarded.live.grpc_address) as channel:
        call = channel.unary_unary(INFER, Message.SerializeToString)
        assert failure(call, Message())[0] is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("name", "first", "code"),
    [
        ("slow", asked(["w1"] * 9), None),
        # A message that is refused counts too, as a text for each 8 KiB.
        ("wrong", asked(["w1"], unknown="x" * 100_000), grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_limits_of_a_key_say_when_to_come_again(
    guarded: Any, keys: Keys, name: str, first: Any, code: grpc.StatusCode | None
) -> None:
    bearer = keys.bearer(name)
    if code is None:
        guarded.ModelInfer(first, metadata=bearer)
    else:
        assert failure(guarded.ModelInfer, first, metadata=bearer)[0] is code
    found, trailing = failure(guarded.ModelInfer, asked(["w1"] * 9), metadata=bearer)
    assert found is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert trailing["x-offramp-error"] == "rate_limited"
    assert int(trailing["retry-after"]) > 2
    assert int(trailing["grpc-retry-pushback-ms"]) == 1000 * int(trailing["retry-after"])


def test_every_call_is_counted_and_logged_by_its_id(
    guarded: Any, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    counted = {"route": INFER, "model": "tiny", "code": "200"}
    before = guarded.live.metric("offramp_requests_total", **counted)
    with caplog.at_level(logging.INFO, ACCESS_LOG):
        metadata = (*keys.bearer("user"), ("x-request-id", "mine"))
        _, call = guarded.ModelInfer.with_call(asked(["w1", "w2"]), metadata=metadata)
        assert ("x-request-id", "mine") in call.trailing_metadata()
        until(lambda: guarded.live.metric("offramp_requests_total", **counted) == before + 1)
    lines = [vars(r)["fields"] for r in caplog.records if r.name == ACCESS_LOG]
    [line] = [line for line in lines if line["route"] == INFER]
    assert (line["id"], line["key"], line["status"], line["rows"]) == ("mine", "user", 200, 2)
    assert line["layers"] >= 2


def test_refused_call_is_logged_with_key_address_and_trace(
    bundle_folder: Path, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"keys": keys.file, "access_log": True, "trusted_proxies": ["127.0.0.1"]}
    traced = ("traceparent", f"00-{'1' * 32}-{'2' * 16}-01")
    forwarded = (("x-forwarded-for", "192.0.2.1"), ("x-forwarded-for", "203.0.113.5"), traced)
    with (
        caplog.at_level(logging.INFO, ACCESS_LOG),
        serving_grpc(bundle_folder, **config) as live,
        stub(live.grpc_address) as calls,
    ):
        metadata = (*keys.bearer("viewer"), *forwarded)
        code, _ = failure(calls.ModelInfer, asked(["w1"]), metadata=metadata)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        until(lambda: any(r.name == ACCESS_LOG for r in caplog.records))
    [line] = [vars(r)["fields"] for r in caplog.records if r.name == ACCESS_LOG]
    assert (line["key"], line["client"], line["error"]) == ("viewer", "203.0.113.5", "forbidden")
    assert line["trace_id"] == "1" * 32


def test_one_channel_has_more_than_a_thousand_calls_at_once(server: LiveServer) -> None:
    with stub(server.grpc_address) as calls:
        calls.ModelInfer(asked(["w1"]))
        futures = [calls.ModelInfer.future(asked(["w1"])) for _ in range(1500)]
        assert not [error for future in futures if (error := future.exception())]


def test_a_client_has_half_of_the_held_messages_and_answered_ones_are_not_held(
    bundle_folder: Path, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    for name in ("many", "other"):
        keys.add(name, "classify")
    config = {"max_body_bytes": 50_000, "max_buffered_bytes": 100_000, "keys": keys.file}
    large = asked([" ".join(WORDS[:60])] * 200)
    with serving_grpc(bundle_folder, **config) as live, stub(live.grpc_address) as calls:

        def refused() -> bool:
            many = [calls.ModelInfer.future(large, metadata=keys.bearer("many")) for _ in range(4)]
            other = calls.ModelInfer.future(large, metadata=keys.bearer("other"))
            assert other.result().model_name == "tiny"
            errors = [error for each in many if (error := each.exception())]
            codes = {dict(error.trailing_metadata())["x-offramp-error"] for error in errors}
            assert codes <= {"rate_limited"}
            return bool(errors)

        until(refused)
        for _ in range(8):
            assert calls.ModelInfer(large, metadata=keys.bearer("many")).model_name == "tiny"


def test_call_is_in_flight_until_its_answer_is_taken(
    bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve.access.held_bytes, "FREE_BYTES", 10)
    keys = Keys(tmp_path)
    keys.add("one", "classify", in_flight=1)
    bearer, asking = keys.bearer("one"), asked(["w1"])
    with (
        serving_grpc(bundle_folder, keys=keys.file, open_metrics=True) as live,
        stub(live.grpc_address) as calls,
        raw_http2(live.grpc_address, window=0) as client,
    ):
        stream = client.call(INFER, asking.SerializeToString(), bearer)
        until(lambda: live.metric("offramp_unsent_bytes"))
        assert failure(calls.ModelInfer, asking, metadata=bearer)[0] is (
            grpc.StatusCode.RESOURCE_EXHAUSTED
        )
        client.take(stream)
        until(lambda: not live.metric("offramp_unsent_bytes"))
        assert calls.ModelInfer(asking, metadata=bearer).model_name == "tiny"


def test_full_queue_is_said_with_a_time_to_wait(bundle_folder: Path) -> None:
    with serving_grpc(bundle_folder, max_queue_rows=70) as live, stub(live.grpc_address) as calls:

        def refused() -> Any:
            futures = [calls.ModelInfer.future(asked(LONG)) for _ in range(16)]
            errors = [error for future in futures if (error := future.exception())]
            return errors and errors[0]

        error = until(refused)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert int(dict(error.trailing_metadata())["retry-after"]) >= 1


def test_cancelled_call_drops_its_rows(bundle_folder: Path) -> None:
    with serving_grpc(bundle_folder) as live, stub(live.grpc_address) as calls:

        def cancel_some() -> bool:
            futures = [calls.ModelInfer.future(asked(LONG)) for _ in range(8)]
            until(lambda: live.metric("offramp_queue_depth") or futures[-1].done())
            for future in futures:
                future.cancel()
            until(lambda: live.metric("offramp_queue_depth") == 0)
            return live.metric("offramp_client_disconnects_total", model="tiny") > 0

        until(cancel_some)
        assert live.metric("offramp_requests_total", route=INFER, code="499")
        answered = live.metric("offramp_requests_total", route=INFER, code="200")
        assert live.metric("offramp_exits_total") < 64 * (
            answered + live.metric("offramp_client_disconnects_total")
        )
        assert calls.ModelInfer(asked(["w1"])).model_name == "tiny"
