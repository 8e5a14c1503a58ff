"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable
from typing import TypeVar

_Found = TypeVar("_Found")


def until(look: Callable[[], _Found], timeout_s: float = 60.0, every_s: float = 0.01) -> _Found:
    """Return the first true value that `look` returns; fail when there is none in time."""
    end_s = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < end_s, f"still waiting after {timeout_s:g} s"
        time.sleep(every_s)
    return found
