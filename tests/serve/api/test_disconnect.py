"""The work for a request is cancelled when its client disconnects, and only then."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message, Receive

import serve.api.disconnect
from serve.api.disconnect import ClientDisconnected, cancel_on_disconnect


@pytest.fixture(autouse=True)
def watched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve.api.disconnect, "_WATCH_AFTER_S", 0.005)


class Client:
    """The other end of a connection: `leaves` after so many seconds, or stays."""

    def __init__(self, leaves_s: float | None) -> None:
        self._leaves_s = leaves_s
        self.looked_at = 0

    async def receive(self) -> Message:
        self.looked_at += 1
        if self.looked_at == 1:
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.sleep(60 if self._leaves_s is None else self._leaves_s)
        return {"type": "http.disconnect"}


class Work:
    """Takes some time; notes how it ended."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.end = "none"

    async def do(self) -> str:
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            self.end = "cancelled"
            raise
        self.end = "done"
        return "answer"


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run to the end, and see that nothing is left on the loop."""

    async def whole() -> None:
        await main()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(whole())


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_client_that_stays_gets_its_answer(seconds: float) -> None:
    client, work = Client(None), Work(seconds)

    async def main() -> None:
        assert await cancel_on_disconnect(client.receive, work.do()) == "answer"

    run(main)
    assert work.end == "done"
    assert client.looked_at == (2 if seconds else 0), "short work is not watched"


async def broken() -> Message:
    raise RuntimeError("the proxy has died")


@pytest.mark.parametrize("receive", [Client(0.0).receive, Client(0.02).receive, broken])
def test_work_for_a_client_that_leaves_is_cancelled(receive: Receive) -> None:
    work = Work(10)

    async def main() -> None:
        with pytest.raises(ClientDisconnected):
            await cancel_on_disconnect(receive, work.do())
        # The task itself goes on, and can be cancelled by others as before.
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()

    run(main)
    assert work.end == "cancelled"


@pytest.mark.parametrize("when_s", [0.0, 0.02])
def test_cancelling_the_call_cancels_the_work_and_is_no_departure(when_s: float) -> None:
    client, work = Client(None), Work(10)

    async def main() -> None:
        task = asyncio.ensure_future(cancel_on_disconnect(client.receive, work.do()))
        await asyncio.sleep(when_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)
    assert work.end in ("cancelled", "none")


def test_call_that_is_cancelled_while_its_client_leaves_stays_cancelled() -> None:
    client, work = Client(0.0), Work(10)

    async def main() -> None:
        task = asyncio.ensure_future(cancel_on_disconnect(client.receive, work.do()))
        while not task.cancelling():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)


def test_failure_of_the_work_is_the_calls() -> None:
    async def fail() -> None:
        await asyncio.sleep(0.02)
        raise ValueError("broken")

    async def main() -> None:
        with pytest.raises(ValueError, match="broken"):
            await cancel_on_disconnect(Client(None).receive, fail())

    run(main)
