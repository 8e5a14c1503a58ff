"""The stream of a policy's events, taken up again when the connection is lost."""

import json
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse

from serve.policy_cli.server import Answer, CallFailed, Server

_MOST_WAIT_S = 10.0
_MOST_LINE_BYTES = 2**20


def events(server: Server, path: str, say: Callable[[str], None]) -> Iterator[Answer]:
    """Yield events without end.

    Raises:
        CallFailed: the first connection fails, or a later one is refused.
    """
    last_id, wait_s = "", 0.0
    while True:
        try:
            with server.stream(path, last_id) as stream:
                wait_s = 1.0
                for event_id, answer in _read(stream):
                    last_id = event_id or last_id
                    yield answer
            message = "the server has ended the stream"
        except CallFailed as failed:
            if not wait_s or failed.exit_status != 4:
                raise
            message = str(failed)
        say(f"{message}; trying again in {wait_s:g} s")
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _MOST_WAIT_S)


def _read(stream: HTTPResponse) -> Iterator[tuple[str, Answer]]:
    """Yield each event with its id, if it has one."""
    fields: dict[str, str] = {}
    while line := stream.readline(_MOST_LINE_BYTES):
        name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
        if name or value:
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            event = {"event": fields.get("event", ""), "data": json.loads(fields["data"])}
            yield fields.get("id", ""), Answer(json.dumps(event))
        fields = {}
