"""What KServe's own clients get; run by the Python of an environment that has `kserve`.

Its argument is a JSON object: the addresses of the server, and keys. It prints what the clients
returned, as JSON.
"""

import asyncio
import json
import sys
from typing import Any

import grpc
import httpx
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

TEXTS = ["w1", "w2 w3"]
PAIR = {"text": "w1", "text_pair": "w2 w3"}
MANY = {"instances": ["w1"] * 10}


async def refusal(calling: Any) -> str:
    try:
        await calling
    except httpx.HTTPStatusError as error:
        return str(error).partition("' for url")[0]
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return "no error"


def tensors(model: str, **columns: list[str]) -> InferRequest:
    inputs = [
        InferInput(name, [len(texts), 1], "BYTES", [text.encode() for text in texts])
        for name, texts in columns.items()
    ]
    return InferRequest(model, inputs)


def tensors_in_json(model: str, **columns: list[str]) -> InferRequest:
    inputs = [InferInput(name, [len(texts), 1], "BYTES", texts) for name, texts in columns.items()]
    return InferRequest(model, inputs, request_id="seven")


async def by_v1(server: dict[str, str]) -> dict[str, Any]:
    address, known = server["http"], {"X-API-Key": server["key"]}
    limited = {"X-API-Key": server["limited"]}
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:

        async def infer(data: Any, model: str = "tiny", headers: Any = known, **more: Any) -> Any:
            return await client.infer(address, data, model_name=model, headers=headers, **more)

        told: dict[str, str] = {}
        return {
            "ready": await client.is_model_ready(address, "tiny", headers=known),
            "batch": await infer({"instances": TEXTS}, response_headers=told),
            "layers": told["x-offramp-exit-layer"],
            "pair": await infer({"instances": [PAIR]}),
            "dial": await infer({"instances": ["w1"], "parameters": {"exit": "fast"}}),
            "missing": await refusal(infer({"instances": ["w1"]}, "none")),
            "empty": await refusal(infer({"instances": [""]})),
            "key": await refusal(infer({"instances": ["w1"]}, headers=None)),
            "most": len((await infer(MANY, headers=limited))["predictions"]),
            "overload": await refusal(infer(MANY, headers=limited)),
        }


async def by_v2(server: dict[str, str]) -> dict[str, Any]:
    address, known = server["http"], {"X-API-Key": server["key"]}
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:

        async def infer(request: Any, headers: Any = known) -> Any:
            return await client.infer(
                address, request, model_name=request.model_name, headers=headers
            )

        single = tensors_in_json("tiny", TEXT=["w1"])
        pair = tensors_in_json("tiny", TEXT=["w1"], TEXT_PAIR=["w2 w3"])
        return {
            "live": await client.is_server_live(address, headers=known),
            "ready": await client.is_model_ready(address, "tiny", headers=known),
            "batch": scores(await infer(tensors_in_json("tiny", TEXT=TEXTS))),
            "pair": scores(await infer(pair)),
            "missing": await refusal(infer(tensors_in_json("none", TEXT=["w1"]))),
            "empty": await refusal(infer(tensors_in_json("tiny", TEXT=[""]))),
            "key": await refusal(infer(single, headers=None)),
            "overload": await refusal(infer(single, headers={"X-API-Key": server["limited"]})),
        }


async def by_grpc(server: dict[str, str]) -> dict[str, Any]:
    known = (("x-api-key", server["key"]),)
    async with InferenceGRPCClient(server["grpc"]) as client:

        async def infer(headers: Any = known, **columns: list[str]) -> Any:
            return await client.infer(tensors("tiny", **columns), headers=headers)

        return {
            "ready": await client.is_model_ready("tiny", headers=known),
            "batch": scores(await infer(TEXT=TEXTS)),
            "pair": scores(await infer(TEXT=["w1"], TEXT_PAIR=["w2 w3"])),
            "missing": await refusal(client.infer(tensors("none", TEXT=["w1"]), headers=known)),
            "empty": await refusal(infer(TEXT=[""])),
            "key": await refusal(infer((), TEXT=["w1"])),
            "overload": await refusal(infer((("x-api-key", server["limited"]),), TEXT=["w1"])),
        }


def scores(answer: Any) -> Any:
    (found,) = [tensor for tensor in answer.outputs if tensor.name == "probabilities"]
    return found.as_numpy().tolist()


async def main(server: dict[str, str]) -> dict[str, Any]:
    return {"v1": await by_v1(server), "v2": await by_v2(server), "grpc": await by_grpc(server)}


print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
