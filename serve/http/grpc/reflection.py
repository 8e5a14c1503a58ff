"""Reflection: tells clients such as grpcurl what services and messages there are."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_reflection.v1alpha import _async as reflection_aio
from grpc_reflection.v1alpha import reflection_pb2

from serve.http.grpc.call import Calls
from serve.http.grpc.messages import HEALTH, INFERENCE, POOL, REFLECTION, parse


def reflection_handlers(calls: Calls) -> dict[str, Any]:
    """Return grpc.aio's handlers of reflection.

    Answers repeat their requests. As messages of at most some KiB are read, and the next one after
    the answer is written, a client that takes no answers makes the server hold little.
    """
    servicer = reflection_aio.ReflectionServicer((INFERENCE, HEALTH, REFLECTION), POOL)

    async def reflect(messages: Any, rpc: Any) -> None:
        async with calls.stream(rpc) as client:
            requests = _parsed(calls.reader.stream(rpc, client))
            async for answer in servicer.ServerReflectionInfo(requests, rpc):
                await rpc.write(answer.SerializeToString())

    return {"ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(reflect)}


async def _parsed(messages: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    async for data in messages:
        yield parse(reflection_pb2.ServerReflectionRequest, data)
