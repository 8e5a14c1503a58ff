"""What KServe's own client gets; run by the Python of an environment that has `kserve`.

Its argument is the server's address. It prints what the client returned, as JSON.
"""

import asyncio
import json
import sys
from typing import Any

import httpx
from kserve import InferenceRESTClient, RESTConfig

TEXTS = ["w1", "w2 w3"]
PAIR = {"text": "w1", "text_pair": "w2 w3"}


async def refusal(client: InferenceRESTClient, address: str, model: str, data: Any) -> str:
    try:
        await client.infer(address, data, model_name=model)
    except httpx.HTTPStatusError as error:
        return str(error).partition("' for url")[0]
    return "no error"


async def main(address: str) -> dict[str, Any]:
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        headers: dict[str, str] = {}
        return {
            "ready": await client.is_model_ready(address, "tiny"),
            "batch": await client.infer(
                address, {"instances": TEXTS}, model_name="tiny", response_headers=headers
            ),
            "layers": headers["x-offramp-exit-layer"],
            "pair": await client.infer(address, {"instances": [PAIR]}, model_name="tiny"),
            "dial": await client.infer(
                address,
                {"instances": ["w1"], "parameters": {"exit": "fast"}},
                model_name="tiny",
            ),
            "missing": await refusal(client, address, "none", {"instances": ["w1"]}),
            "empty": await refusal(client, address, "tiny", {"instances": [""]}),
        }


print(json.dumps(asyncio.run(main(sys.argv[1]))))
