"""NeMo Guardrails' classifier rail; run by the Python of an environment that has it.

Its arguments are the server's address and the label to block. Only input rails run, so no language
model is needed. It prints, for each back end, the scores that it read and whether the rail let each
text pass, as JSON.
"""

import asyncio
import json
import sys
from typing import Any

from nemoguardrails import LLMRails, RailsConfig
from nemoguardrails.library.hf_classifier.backends import get_backend

TEXTS = ("w1 w2", "w7", "w9 w3 w5")
CONFIG = """
models: []
rails:
  config:
    hf_classifier:
      mine:
        engine: {engine}
        model: {model}
        base_url: "{address}"
        threshold: 0.99
        blocked_labels: ["{label}"]
  input:
    flows:
      - hf classifier check input $classifier="mine"
"""


def configured(engine: str, model: str, address: str, label: str) -> RailsConfig:
    fields = {"engine": engine, "model": model, "address": address, "label": label}
    return RailsConfig.from_content(yaml_content=CONFIG.format(**fields))


async def passes(rails: LLMRails, text: str) -> bool:
    options = {"rails": ["input"]}
    answer = await rails.generate_async(
        messages=[{"role": "user", "content": text}], options=options
    )
    return bool(answer.response[0]["content"] == text)


async def scores(config: RailsConfig, text: str) -> dict[str, float]:
    backend = get_backend(config.rails.config.hf_classifier["mine"])
    return {each["label"]: each["score"] for each in await backend.classify(text)}


async def main(address: str, label: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for engine in ("vllm", "kserve"):
        config = configured(engine, "tiny", address, label)
        rails = LLMRails(config)
        found[engine] = {
            "scores": {text: await scores(config, text) for text in TEXTS},
            "passes": {text: await passes(rails, text) for text in TEXTS},
        }
        try:
            await scores(configured(engine, "none", address, label), "w1")
        except ValueError as error:
            found[engine]["missing"] = str(error)
    return found


print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
