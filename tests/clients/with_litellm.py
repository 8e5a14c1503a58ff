"""LiteLLM's generic guardrail; run by the Python of an environment that has `litellm[proxy]`.

Its argument is a JSON object: the address of the server, and keys. It prints for each call whether
the guardrail let it pass, or why not, as JSON.
"""

import asyncio
import json
import logging
import sys
from typing import Any

from litellm.proxy.guardrails.guardrail_hooks.generic_guardrail_api.generic_guardrail_api import (
    GenericGuardrailAPI,
)

logging.disable(logging.ERROR)

PASSES, BLOCKED = {"flag": {"negative": 1.0}}, {"flag": {"negative": 0.0}}


async def main(server: dict[str, str]) -> dict[str, str]:
    def guardrail(key: str | None, **parameters: Any) -> GenericGuardrailAPI:
        return GenericGuardrailAPI(
            api_base=server["http"], api_key=key, additional_provider_specific_params=parameters
        )

    async def ask(texts: list[str], key: str | None = server["key"], **parameters: Any) -> str:
        found = guardrail(key, **parameters)
        try:
            passed = await found.apply_guardrail({"texts": texts}, {}, "request")
        except Exception as error:
            return str(error).partition("\n")[0]
        return "passes" if passed["texts"] == texts else "changed"

    single, batch = ["w1 w2"], ["w1", "w2 w3"]
    return {
        "single": await ask(single, **PASSES),
        "batch": await ask(batch, **PASSES),
        "blocked": await ask(batch, **BLOCKED),
        "windows": await ask(["w1 " * 300], **BLOCKED, windows={"stride": 8, "combine": "any"}),
        "bad input": await ask(["w1 " * 300], **PASSES),
        "missing": await ask(single, model="none"),
        "key": await ask(single, None, **PASSES),
        "most": await ask(["w1"] * 10, server["limited"], **PASSES),
        "overload": await ask(["w1"] * 10, server["limited"], **PASSES),
    }


print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
