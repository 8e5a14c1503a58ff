"""Changes of policies while more of them come than are made."""

import asyncio
from threading import Event

import pytest

from serve.errors import Overloaded
from serve.policy.threads import PolicyThreads


async def change_back_while_others_wait() -> str:
    threads, go_on = PolicyThreads(), Event()
    waiting = [asyncio.create_task(threads.change(go_on.wait)) for _ in range(8)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await threads.change(lambda: "forward")
    made = await threads.change(lambda: "back", back=True)
    go_on.set()
    await asyncio.gather(*waiting)
    return made


def test_way_back_is_open_while_other_changes_are_refused() -> None:
    assert asyncio.run(change_back_while_others_wait()) == "back"
