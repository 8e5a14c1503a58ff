import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from serve.access.keys import revoke_key
from serve.api.routes import policy_events
from serve.logs import TRAIL
from serve.policy.document import Policy
from serve.policy.entry import Change
from serve.standalone import standalone_context
from tests.serve.api.conftest import StartServer
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, Problem, config_of, serving, serving_bundles
from tests.support.patience import until

PATH = "/v1/models/tiny/policy"
EVENTS = f"{PATH}/events"


@contextmanager
def events(
    server: LiveServer, kinds: Sequence[str] = ("policy", "guardrail"), **headers: str
) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield the events of a stream that are of these kinds, each with its fields."""

    def read(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
        fields: dict[str, Any] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            if not line and fields:
                if fields["event"] in kinds:
                    yield fields
                fields = {}
            elif name.isalpha():
                fields[name] = json.loads(value) if name == "data" else value

    with server.http.stream("GET", EVENTS, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        yield read(response.iter_lines())


def patch(server: LiveServer, layer: int) -> None:
    body = {"patch": {"default": {"rule": "layer", "layer": layer}}, "version": None}
    server.http.patch(PATH, json=body).raise_for_status()


def test_stream_begins_with_the_live_version_and_goes_on_with_each_new_one(
    start_server: StartServer,
) -> None:
    server = start_server()
    patch(server, 2)
    with events(server) as stream:
        first = next(stream)
        assert (first["event"], first["id"]) == ("policy", "2")
        patch(server, 3)
        patch(server, 4)
        later = [next(stream), next(stream)]
    history = server.http.get(f"{PATH}/history").json()["entries"]
    assert [each["data"] for each in (first, *later)] == [
        {"model": "tiny", **entry} for entry in reversed(history[:3])
    ]
    with events(server, **{"Last-Event-ID": "2"}) as stream:
        assert [next(stream), next(stream)] == later
    with events(server, **{"Last-Event-ID": "9"}) as stream:  # of a log that was lost
        assert next(stream) == later[-1]


def test_change_of_the_guardrail_is_an_event_of_its_own(
    bundle_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = standalone_context(config_of(bundle_folder))
    live = context.catalog.find("tiny").policy
    with serving(context) as server, caplog.at_level("INFO"), events(server) as stream:
        next(stream)
        live.change(Policy(), 1, Change("guardrail", "broken", "guardrail"))
        event = next(stream)
    assert (event["event"], event["id"], event["data"]["source"]) == (
        "guardrail", "2", "guardrail",
    )  # fmt: skip
    [line] = [vars(record)["fields"] for record in caplog.records if record.name == TRAIL]
    assert (line["by"], line["why"], line["action"]) == ("guardrail", "broken", "guardrail")


def test_state_of_promises_is_an_event_when_it_changes(start_server: StartServer) -> None:
    server = start_server()
    with events(server, ("quality",)) as stream:
        first = next(stream)
        assert "id" not in first
        quality = server.http.get("/v1/models/tiny/quality").json()
        assert first["data"] == quality
        profiles = {"added": {"rule": "never"}}
        body = {"patch": {"profiles": profiles}, "version": None}
        server.http.patch(PATH, json=body).raise_for_status()
        assert "added" in next(stream)["data"]["profiles"]


def test_stream_ends_when_the_server_stops(bundle_folder: Path) -> None:
    with ExitStack() as stack, ExitStack() as streaming:
        server = stack.enter_context(serving_bundles(bundle_folder))
        other = LiveServer(server.port)  # the server's own is closed with it
        streaming.enter_context(other.http)
        stream = streaming.enter_context(events(other))
        next(stream)
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(stack.pop_all().close)
            assert list(stream) == []
            stopped.result()


def test_stream_ends_when_its_key_does(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_events, "_SILENT_S", 0.1)
    key, reader = make_key(tmp_path, "admin"), make_key(tmp_path, "read")
    server = start_server(keys=tmp_path / "keys.json")
    assert server.http.get(EVENTS).status_code == 401
    assert server.http.get(EVENTS, headers={"X-API-Key": reader}).status_code == 403
    with events(server, **{"X-API-Key": key}) as stream:
        next(stream)
        revoke_key("admin", tmp_path / "keys.json")
        assert list(stream) == []


def test_number_of_streams_is_bounded_and_clients_that_leave_make_room(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(policy_events, "MAX_STREAMS", 2)
    server = start_server()
    with events(server) as first, events(server) as second:
        assert [next(stream)["id"] for stream in (first, second)] == ["1", "1"]
        refused = server.http.get(EVENTS)
        assert Problem.of(refused)[:2] == (429, "overloaded")
        assert refused.headers["retry-after"]

    def admitted() -> bool:
        with server.http.stream("GET", EVENTS) as response:
            return response.status_code == 200

    until(admitted)
    until(lambda: server.metric("offramp_requests_total", code="499") == 3)
    lines = [vars(record)["fields"] for record in caplog.records if TRAIL in record.name]
    assert {line["status"] for line in lines} == {429}  # those who have left were not refused


def test_a_clients_streams_leave_room_for_others(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_events, "MAX_OF_CLIENT", 1)
    one, other = (
        {"X-API-Key": make_key(tmp_path, "admin", name=name)} for name in ("one", "other")
    )
    server = start_server(keys=tmp_path / "keys.json")
    with events(server, **one) as stream:
        next(stream)
        assert Problem.of(server.http.get(EVENTS, headers=one))[:2] == (429, "rate_limited")
        with events(server, **other) as another:
            next(another)


@pytest.mark.parametrize("given", ["x", "-1", "01", "9" * 30])
def test_last_event_id_that_is_no_version_is_refused(server: LiveServer, given: str) -> None:
    problem = Problem.of(server.http.get(EVENTS, headers={"Last-Event-ID": given}))
    assert (problem.status, problem.message.startswith("Last-Event-ID: must be")) == (422, True)


def test_head_of_a_stream_has_no_events(server: LiveServer) -> None:
    assert server.http.head(EVENTS).status_code == 200
