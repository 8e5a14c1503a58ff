"""Clients too heavy for the tests' own environment, each in one of its own, against a server.

`build/kserve` and `build/nemo` are environments with `kserve` and `nemoguardrails`; without them
these tests skip. What the clients send is held against `tests/serve/api/dialects/recorded/`, from
where other tests send it again. `OFFRAMP_RECORD=1` writes it there anew.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.recorder import recording
from tests.serve.support.live_server import LiveServer, serving_bundles

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORDED = HERE.parent / "serve" / "api" / "dialects" / "recorded"


def run(server: LiveServer, name: str, *arguments: str) -> Any:
    """Return what a client's script prints, after a look at what it has sent."""
    python = ROOT / "build" / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"needs an environment build/{name}")
    with recording(server.port) as recorder:
        address = f"http://127.0.0.1:{recorder.server_port}"
        command = [str(python), str(HERE / f"with_{name}.py"), address, *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    file = RECORDED / f"{name}.json"
    if os.environ.get("OFFRAMP_RECORD"):
        file.write_text(json.dumps(recorder.requests, indent=2) + "\n")
    assert recorder.requests == json.loads(file.read_text())
    return json.loads(done.stdout)


def test_kserves_client_is_answered_as_our_own_route_answers(bundle_folder: Path) -> None:
    with serving_bundles(bundle_folder) as server:
        found = run(server, "kserve")
        pair = {"text": "w1", "text_pair": "w2 w3"}
        own = [r["scores"] for r in server.answer(["w1", "w2 w3", pair])["results"]]
        (fast,) = server.answer("w1", exit="fast")["results"]
    assert found["ready"] is True
    assert found["batch"]["predictions"] == own[:2]
    assert found["pair"]["predictions"] == own[2:]
    assert found["dial"] == {"predictions": [fast["scores"]], "exits": [fast["exit"]]}
    assert found["layers"] == "4,4"
    assert found["missing"] == "no model 'none'; served are tiny, '404 Not Found"
    assert found["empty"] == "instances[0]: must not be empty, '422 Unprocessable Entity"


def test_nemos_rail_blocks_by_the_scores_of_our_own_route(bundle_folder: Path) -> None:
    with serving_bundles(bundle_folder) as server:
        found = run(server, "nemo", "negative")
        texts = list(found["kserve"]["scores"])
        own = dict(zip(texts, server.answer(texts)["results"], strict=True))
    passed = {text: result["scores"]["negative"] < 0.99 for text, result in own.items()}
    assert set(passed.values()) == {True, False}
    assert found["vllm"]["passes"] == found["kserve"]["passes"] == passed
    for text, result in own.items():
        assert found["kserve"]["scores"][text] == result["scores"]
        assert found["vllm"]["scores"][text] == {result["label"]: result["score"]}
    for engine in ("vllm", "kserve"):
        assert "returned 404" in found[engine]["missing"]
        assert "no model 'none'" in found[engine]["missing"]
