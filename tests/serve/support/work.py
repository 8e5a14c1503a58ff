"""How much a request makes the event loop do, counted instead of timed."""

import asyncio
import gc
import sys
from types import FrameType
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message


class Work(NamedTuple):
    """What one request has cost.

    Attributes:
        status: of its answer.
        lines: of Python that were run for it.
        containers: objects that were made for it and may hold others, to a few hundred.
    """

    status: int
    lines: int
    containers: int


class _Counter:
    def __init__(self) -> None:
        self.lines = self.collections = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.lines += event == "line"
        return self.trace

    def collected(self, phase: str, info: dict[str, int]) -> None:
        self.collections += phase == "start"


async def work_of(app: ASGIApp, method: str, path: str, body: bytes) -> Work:
    """Let an app answer a request of JSON, and count what it does for it."""
    sent, counter = list[Message](), _Counter()
    received = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not received:
            await asyncio.Event().wait()
        return received.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    headers = {"host": "x", "content-type": "application/json", "content-length": str(len(body))}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    gc.callbacks.append(counter.collected)
    sys.settrace(counter.trace)
    try:
        await app(scope, receive, send)
    finally:
        sys.settrace(None)
        gc.callbacks.remove(counter.collected)
    return Work(sent[0]["status"], counter.lines, counter.collections * gc.get_threshold()[0])
