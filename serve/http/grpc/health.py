"""gRPC's health checks, as Kubernetes and load balancers ask them."""

import asyncio
from typing import Any, Final

import grpc

from serve.api.context import AppContext
from serve.errors import NotFound
from serve.http.grpc.call import Call, Calls
from serve.http.grpc.messages import HEALTH, INFERENCE, message_class, parse, types_of

_Response: Final = message_class("grpc.health.v1.HealthCheckResponse")
# The empty name stands for the whole server.
_SERVICES: Final = ("", INFERENCE)
_LOOK_EVERY_S: Final = 1.0


class HealthService:
    """Tells whether the server takes calls: every engine runs, and no stop is near."""

    def __init__(self, context: AppContext) -> None:
        """Answer for the models of a context."""
        self._context = context

    @property
    def ready(self) -> bool:
        """Whether the server takes new calls."""
        return not (self._context.connections.stopping or self._context.catalog.faults())

    async def check(self, call: Call, message: Any) -> Any:
        """Return the health of a service.

        Raises:
            NotFound: there is no such service.
        """
        if message.service not in _SERVICES:
            raise NotFound(f"no service {message.service[:64]!r}; there is {INFERENCE}")
        return self._status(self._name(message.service))

    def watch_handler(self, calls: Calls) -> Any:
        """Return grpc.aio's handler of Watch, which tells every change; it ends at the stop."""
        request_type, _ = types_of(HEALTH, "Watch")

        async def watch(messages: Any, rpc: Any) -> None:
            told = ""
            async with calls.stream(rpc) as client:
                request = parse(request_type, await calls.reader.read(rpc, client, probe=True))
                while True:
                    now = self._name(request.service)
                    if now != told:
                        await rpc.write(self._status(now))
                        told = now
                    if self._context.connections.stopping:
                        return
                    await asyncio.sleep(_LOOK_EVERY_S)

        # Not as a method of one message: grpc.aio would wait for that before it calls us.
        return grpc.stream_stream_rpc_method_handler(
            watch, response_serializer=lambda answer: answer.SerializeToString()
        )

    def _name(self, service: str) -> str:
        if service not in _SERVICES:
            return "SERVICE_UNKNOWN"
        return "SERVING" if self.ready else "NOT_SERVING"

    def _status(self, name: str) -> Any:
        return _Response(status=_Response.ServingStatus.Value(name))
