"""NeMo Guardrails' classifier rail; run by the Python of an environment that has it.

Its argument is a JSON object: the address of the server and its CA, keys, and the label to
block. Only input
rails run, so no language model is needed. It prints, for each back end, the scores that it read and
whether the rail let each text pass, as JSON.
"""

import asyncio
import json
import os
import sys
from typing import Any

from nemoguardrails import LLMRails, RailsConfig
from nemoguardrails.library.hf_classifier.backends import get_backend

TEXTS = ("w1 w2", "w7", "w9 w3 w5")
LONG = "w1 " * 300
CONFIG = """
models: []
rails:
  config:
    hf_classifier:
      mine:
        engine: {engine}
        model: {model}
        base_url: "{http}"
        {key_line}
        parameters: {{ca_cert: "{ca}"}}
        threshold: 0.99
        blocked_labels: ["{label}"]
  input:
    flows:
      - hf classifier check input $classifier="mine"
"""


def configured(
    server: dict[str, str], engine: str, model: str = "tiny", key: str = ""
) -> RailsConfig:
    key_line = f"api_key_env_var: OFFRAMP_{key}" if key else ""
    fields = {**server, "engine": engine, "model": model, "key_line": key_line}
    return RailsConfig.from_content(yaml_content=CONFIG.format(**fields))


async def passes(rails: LLMRails, text: str) -> bool:
    messages = [{"role": "user", "content": text}]
    answer = await rails.generate_async(messages=messages, options={"rails": ["input"]})
    return bool(answer.response[0]["content"] == text)


async def scores(config: RailsConfig, text: str) -> dict[str, float]:
    backend = get_backend(config.rails.config.hf_classifier["mine"])
    return {each["label"]: each["score"] for each in await backend.classify(text)}


async def refusal(config: RailsConfig, text: str = "w1") -> str:
    try:
        await scores(config, text)
    except ValueError as error:
        return str(error)
    return "no error"


async def until_refused(config: RailsConfig) -> str:
    while (said := await refusal(config)) == "no error":
        pass
    return said


async def main(server: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    os.environ |= {f"OFFRAMP_{key}": server[key] for key in ("key", "limited")}
    for engine in ("vllm", "kserve", "fms"):
        config = configured(server, engine, key="key")
        rails = LLMRails(config)
        found[engine] = {
            "scores": {text: await scores(config, text) for text in TEXTS},
            "passes": {text: await passes(rails, text) for text in TEXTS},
            "bad input": await refusal(config, LONG),
            "missing": await refusal(configured(server, engine, "none", "key")),
            "key": await refusal(configured(server, engine)),
            "overload": await until_refused(configured(server, engine, key="limited")),
        }
    return found


print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
