"""Changes that are made to their end, also if the client leaves meanwhile."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from serve.api.errors import expected
from serve.api.request import Request

_Made = TypeVar("_Made")


async def to_its_end(request: Request, change: Coroutine[Any, Any, _Made]) -> _Made:
    """Return what a change returns: every change is logged, and goes to all replicas."""
    changing = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(changing)
    except asyncio.CancelledError:
        changing.add_done_callback(partial(_note_error, request))
        await asyncio.wait([changing])
        raise


def _note_error(request: Request, change: asyncio.Future[Any]) -> None:
    """Note why the change of a client that has left was not made."""
    if not change.cancelled() and (error := change.exception()):
        expected(error, request)
