"""The OpenAPI document takes a quarter of a second to make, which the event loop cannot spare."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from serve.api.errors import add_error_handlers
from serve.api.routes.operations import add_document_route
from serve.errors import MethodNotAllowed


@pytest.mark.parametrize("request_line", ["GET /openapi.json", "DELETE /openapi.json", "PUT /a"])
def test_it_is_made_on_a_thread(request_line: str) -> None:
    app, made_on = FastAPI(), []
    make = app.openapi

    def openapi() -> dict[str, Any]:
        made_on.append(threading.current_thread())
        return make()

    app.openapi = openapi  # type: ignore[method-assign]
    app.get("/a")(lambda: None)
    add_error_handlers(app)
    add_document_route(app)
    method, path = request_line.split()

    async def ask() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await client.request(method, path)

    with suppress(MethodNotAllowed):
        asyncio.run(ask())
    assert made_on
    assert threading.main_thread() not in made_on
