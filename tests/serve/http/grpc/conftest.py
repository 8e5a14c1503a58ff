"""Triton's own client, and calls by the stubs that it is made with."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput, service_pb2, service_pb2_grpc

from tests.serve.support.live_server import LiveServer, serving_grpc
from tests.serve.support.server_process import ServerProcess


@pytest.fixture(scope="module")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    with serving_grpc(bundle_folder, max_inputs=8) as live:
        yield live


@pytest.fixture
def client(server: LiveServer) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(server.grpc_address) as triton:
        yield triton


def texts(values: list[str], name: str = "TEXT") -> InferInput:
    tensor = InferInput(name, [len(values), 1], "BYTES")
    tensor.set_data_from_numpy(np.array(values, np.object_).reshape(-1, 1))
    return tensor


@contextmanager
def stub(address: str) -> Iterator[Any]:
    with grpc.insecure_channel(address) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def asked(values: list[str], **parameters: str) -> Any:
    """Return a request with typed contents, as one would write it by hand."""
    request = service_pb2.ModelInferRequest(model_name="tiny")
    tensor = request.inputs.add(name="TEXT", datatype="BYTES", shape=[len(values)])
    tensor.contents.bytes_contents.extend(value.encode() for value in values)
    for name, value in parameters.items():
        request.parameters[name].string_param = value
    return request


def failure(call: Any, *arguments: Any, **options: Any) -> tuple[grpc.StatusCode, dict[str, Any]]:
    """Return the code of a call that must fail, and its trailing metadata."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **options)
    error: Any = caught.value
    trailing = {key: value for key, value in error.trailing_metadata() or ()}
    return error.code(), {**trailing, "message": error.details() or ""}


def grpc_address(process: ServerProcess) -> str:
    """Return where a server listens that was started with `--grpc-port 0`."""
    process.curl_line()
    found = re.search(r"^gRPC on (\S+)$", process.output, re.MULTILINE)
    assert found, process.output
    return found[1]
