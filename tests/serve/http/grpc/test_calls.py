"""Keys, bounds, cancelling, metrics and log lines of calls."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from serve.access.keys import Key, KeyLimits, Scope, new_key
from serve.config import ServerConfig
from serve.http.grpc.call import Calls
from serve.http.standalone import standalone_context
from serve.logs import ACCESS_LOG
from tests.serve.http.grpc.conftest import asked, failure, stub
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
        key = Key(name=name, sha256="0" * 64, scopes=(scope,), limits=KeyLimits(**limits))
        self._secrets[name] = new_key(key, self.file)

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
    code, _ = failure(guarded.ModelInfer, asked(["w1"]))
    assert code is grpc.StatusCode.UNAUTHENTICATED
    wrong = (("authorization", "Bearer wrong"),)
    code, trailing = failure(guarded.ModelInfer, asked(["w1"]), metadata=wrong)
    assert (code, trailing["x-offramp-error"]) == (grpc.StatusCode.UNAUTHENTICATED, "unauthorized")
    code, _ = failure(guarded.ModelInfer, asked(["w1"]), metadata=keys.bearer("viewer"))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    for metadata in (keys.bearer("user"), keys.api_key("user")):
        assert guarded.ModelInfer(asked(["w1"]), metadata=metadata).model_name == "tiny"
    several = (*keys.bearer("user"), *keys.bearer("viewer"))
    code, trailing = failure(guarded.ModelInfer, asked(["w1"]), metadata=several)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert trailing["x-offramp-error"] == "several_keys"


def test_message_without_a_key_is_not_read(guarded: Any) -> None:
    class Message:
        def SerializeToString(self) -> bytes:
            return b"\xff" * 1000

    with grpc.insecure_channel(guarded.live.grpc_address) as channel:
        call = channel.unary_unary(INFER, Message.SerializeToString)
        assert failure(call, Message())[0] is grpc.StatusCode.UNAUTHENTICATED


def test_limits_of_a_key_say_when_to_come_again(guarded: Any, keys: Keys) -> None:
    slow = keys.bearer("slow")
    guarded.ModelInfer(asked(["w1"] * 9), metadata=slow)
    code, trailing = failure(guarded.ModelInfer, asked(["w1"] * 9), metadata=slow)
    assert (code, trailing["x-offramp-error"]) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "rate_limited",
    )
    assert 1 <= int(trailing["retry-after"]) <= 10
    assert int(trailing["grpc-retry-pushback-ms"]) == 1000 * int(trailing["retry-after"])


def test_a_key_with_a_rate_is_held_to_it_by_messages_that_are_refused(
    guarded: Any, keys: Keys
) -> None:
    wrong = asked(["w1"], unknown="x" * 100_000)
    code, _ = failure(guarded.ModelInfer, wrong, metadata=keys.bearer("wrong"))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    code, trailing = failure(guarded.ModelInfer, asked(["w1"]), metadata=keys.bearer("wrong"))
    assert (code, trailing["x-offramp-error"]) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "rate_limited",
    )
    assert int(trailing["retry-after"]) > 2  # a text for each 8 KiB


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


def test_bytes_that_are_no_message_are_refused(server: LiveServer) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        code, trailing = failure(channel.unary_unary(INFER), b"\xff\xff")
    assert (code, trailing["x-offramp-error"]) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "malformed_body",
    )


def test_one_channel_has_more_than_a_thousand_calls_at_once(server: LiveServer) -> None:
    with stub(server.grpc_address) as calls:
        calls.ModelInfer(asked(["w1"]))
        futures = [calls.ModelInfer.future(asked(["w1"])) for _ in range(1500)]
        assert not [error for future in futures if (error := future.exception())]


class Rpc:
    """A call of grpc.aio whose client takes no answer."""

    def __init__(self, message: bytes, address: str) -> None:
        self._message, self._address = message, address
        self.error: Any = None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def peer(self) -> str:
        return f"ipv4:{self._address}:9"

    def add_done_callback(self, callback: Any) -> None:
        """Never call it."""

    def set_trailing_metadata(self, metadata: Any) -> None:
        """Send none."""

    async def read(self) -> bytes:
        return self._message

    async def abort(self, code: grpc.StatusCode, message: str, metadata: Any) -> None:
        self.error = code, dict(metadata)["x-offramp-error"]
        raise grpc.aio.AbortError


class Made:
    """A large answer."""

    def SerializeToString(self) -> bytes:
        return bytes(20_000)


def test_a_client_has_half_of_the_held_messages_and_answered_ones_are_not_held(
    bundle_folder: Path,
) -> None:
    config = ServerConfig(
        bundles=[str(bundle_folder)], max_body_bytes=200_000, max_buffered_bytes=400_000
    )
    message = asked(["w" * 190_000]).SerializeToString()

    async def scenario() -> None:
        free = asyncio.Event()

        async def answer(call: Any, request: Any) -> Any:
            await free.wait()
            return Made()

        calls = Calls(standalone_context(config), config.connections)
        handle = calls.handler(*INFER[1:].split("/"), answer, "classify").stream_unary
        rpcs = [Rpc(message, address) for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2")]
        ends = [asyncio.create_task(handle(None, rpc)) for rpc in rpcs]
        await asyncio.wait(ends[1:2])
        assert rpcs[1].error == (grpc.StatusCode.RESOURCE_EXHAUSTED, "rate_limited")
        free.set()
        await asyncio.gather(*ends, return_exceptions=True)
        later = [Rpc(message, f"10.0.0.{number}") for number in range(3, 7)]
        for rpc in later:
            await handle(None, rpc)
        assert [rpc.error for rpc in (rpcs[0], rpcs[2], *later)] == [None] * 6

    asyncio.run(scenario())


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
