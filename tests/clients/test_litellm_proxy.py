"""LiteLLM's proxy with a key of Offramp's that is bound to a profile; see `test_clients`.

LiteLLM merges the `extra_body` of its caller, where it has a licence for that, over the guardrail's
configured parameters. Here each guardrail is configured with what such a merge leaves.
"""

import json
import runpy
from pathlib import Path
from typing import Any

from serve.access.keys import Key, new_key
from tests.clients.test_clients import LABEL, ROOT, Guarded, python_of

EXAMPLE = ROOT / "docs" / "examples" / "guardrail"
LAYER_1 = {"rule": "layer", "layer": 1}
MERGED: dict[str, dict[str, Any]] = {
    "own flag": {"flag": {LABEL: 1.0}},
    "threshold": {"threshold": 1.0},
    "other profile": {"profile": "lax"},
    "no profile": {"profile": None, "exit": LAYER_1},
    "no profile, own flag": {"profile": None, "exit": LAYER_1, "flag": {LABEL: 1.0}},
    "other model": {"model": "other"},
    "windows": {"windows": {"combine": "mean"}},
    "unchecked": {"unchecked": ["tools", "images", "content"]},
}


def test_nothing_that_a_caller_of_litellm_adds_weakens_a_bound_key(
    server: Guarded, tmp_path: Path
) -> None:
    litellm = python_of("litellm").with_name("litellm")
    document = server.live.http.get("/v1/models/tiny/policy").json()["policy"]
    document["profiles"] |= {
        "guard": {"exit": {"rule": "never"}, "flag": {LABEL: 0.0}},
        "lax": {"flag": {LABEL: 1.0}},
    }
    document |= {"default": "lax", "limits": {"flag": "any", "windows": "any", "unchecked": "any"}}
    put = server.live.put_policy(document)
    assert put.status_code == 200, put.text
    fields = {"name": "litellm", "sha256": "0" * 64, "scopes": ["classify"], "profiles": ["guard"]}
    bound = Key.model_validate({**fields, "models": ["tiny"]})
    keys = {"bound": new_key(bound, tmp_path / "keys.json"), "free": server.key}
    run = runpy.run_path(str(EXAMPLE / "run.py"))
    model, proxy = (f"http://127.0.0.1:{run['free_port']()}" for _ in range(2))
    settings = {"guardrail": "generic_guardrail_api", "mode": "pre_call", "fail_on_error": True}
    settings |= {"api_base": f"http://127.0.0.1:{server.live.port}"}
    guardrails = [
        {
            "guardrail_name": f"{key}: {name}",
            "litellm_params": {
                **settings,
                "api_key": secret,
                "additional_provider_specific_params": {"profile": "guard", **more},
            },
        }
        for key, secret in keys.items()
        for name, more in {"no more": {}, **MERGED}.items()
    ]
    fake = {"model": "openai/fake", "api_base": model, "api_key": "none"}
    config = {
        "model_list": [{"model_name": "fake", "litellm_params": fake}],
        "guardrails": guardrails,
    }
    (tmp_path / "litellm.yaml").write_text(json.dumps(config))  # JSON is YAML
    command = [litellm, "--config", tmp_path / "litellm.yaml", "--host", "127.0.0.1"]
    command += ["--port", run["port_of"](proxy)]

    def ask(guardrail: str) -> tuple[int, str]:
        chat = {"model": "fake", "messages": [{"role": "user", "content": "w1 w2"}]}
        sent = {**chat, "guardrails": [guardrail]}
        status, answer = run["send"]("POST", f"{proxy}/chat/completions", sent, "sk-tests")
        return status, json.dumps(answer)

    with (
        run["started"](run["script"]("fake_llm.py", model), model),
        run["started"](command, proxy, LITELLM_MASTER_KEY="sk-tests"),
    ):
        status, said = ask("free: own flag")  # it weakens where nothing is bound
        assert status == 200, said
        assert "flagged by the classifier" in ask("bound: no more")[1]
        for name in MERGED:
            status, said = ask(f"bound: {name}")
            assert status != 200, (name, said)
            assert "403" in said, (name, said)
