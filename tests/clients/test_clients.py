"""Clients too heavy for the tests' own environment, each in one of its own, against a server.

`make clients` makes the environments in build/clients from the files of requirements beside this
one; without them these tests skip. What the clients send is held against
`tests/serve/dialects/recorded/`, from where other tests send it again. `OFFRAMP_RECORD=1`
writes it there anew.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from serve.http.tls import TlsFiles
from tests.clients.recorder import recording
from tests.docs.test_clients_page import check_lines
from tests.serve.support.certificates import NEEDS_OPENSSL, Authority
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, serving_grpc

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORDED = HERE.parent / "serve" / "dialects" / "recorded"
LABEL = "negative"


class Guarded(NamedTuple):
    """A server with keys: one without limits, and one with few rows a second."""

    live: LiveServer
    key: str
    limited: str


@pytest.fixture
def server(bundle_folder: Path, tmp_path: Path) -> Iterator[Guarded]:
    """Serve a policy whose default has a flag."""
    key, limited = make_key(tmp_path, "admin"), make_key(tmp_path, "classify", rows_per_s=1)
    with serving_grpc(bundle_folder, keys=tmp_path / "keys.json") as live:
        live.http.headers["X-API-Key"] = key
        document = live.http.get("/v1/models/tiny/policy").json()["policy"]
        document["profiles"]["guard"] = {"exit": {"rule": "never"}, "flag": {LABEL: 0.5}}
        document["default"] = "guard"
        put = live.put_policy(document)
        assert put.status_code == 200, put.text
        yield Guarded(live, key, limited)


def python_of(name: str) -> Path:
    """Return the Python of a client's environment, or skip."""
    python = ROOT / "build" / "clients" / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"needs the environment build/clients/{name}: make clients")
    return python


def run(server: Guarded, name: str, certificate: TlsFiles | None = None, **more: str) -> Any:
    """Return what a client's script prints, after a look at what it has sent."""
    python = python_of(name)
    with recording(server.live.port, certificate) as recorder:
        told = {
            "http": recorder.address,
            "grpc": server.live.grpc_address,
            "key": server.key,
            "limited": server.limited,
            **more,
        }
        command = [str(python), str(HERE / f"with_{name}.py"), json.dumps(told)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    file = RECORDED / f"{name}.json"
    if os.environ.get("OFFRAMP_RECORD"):
        file.write_text(json.dumps(recorder.requests, indent=2) + "\n")
    assert recorder.requests == json.loads(file.read_text())
    return json.loads(done.stdout)


def test_kserves_clients_are_answered_as_our_own_route_answers(server: Guarded) -> None:
    labels = server.live.http.get("/v1/models/tiny").json()["labels"]
    pair = {"text": "w1", "text_pair": "w2 w3"}
    own = [r["scores"] for r in server.live.answer(["w1", "w2 w3", pair])["results"]]
    (fast,) = server.live.answer("w1", exit="fast")["results"]
    found = run(server, "kserve")
    v1, v2, grpc = found["v1"], found["v2"], found["grpc"]
    assert v1["ready"] is v2["ready"] is v2["live"] is grpc["ready"] is True
    assert (v1["batch"]["predictions"], v1["pair"]["predictions"]) == (own[:2], own[2:])
    assert v1["dial"] == {"predictions": [fast["scores"]], "exits": [fast["exit"]]}
    assert v1["layers"] == "4,4"
    rows = [[scores[label] for label in labels] for scores in own]
    for by in (v2, grpc):
        assert [*by["batch"], *by["pair"]] == [pytest.approx(row, abs=1e-6) for row in rows]
    assert v1["missing"] == "no model 'none'; served are tiny, '404 Not Found"
    assert v1["empty"] == "instances[0]: must not be empty, '422 Unprocessable Entity"
    assert v1["key"].endswith("'401 Unauthorized")
    assert v1["most"] == 10
    assert v1["overload"].endswith("'429 Too Many Requests")
    statuses = {"missing": 404, "empty": 422, "key": 401, "overload": 429}
    for name, status in statuses.items():
        assert f"'{status} " in v2[name], v2[name]
    codes = {
        "missing": "NOT_FOUND",
        "empty": "INVALID_ARGUMENT",
        "key": "UNAUTHENTICATED",
        "overload": "RESOURCE_EXHAUSTED",
    }
    assert {name: grpc[name].partition(":")[0] for name in codes} == codes


@NEEDS_OPENSSL
def test_nemos_rail_blocks_by_the_scores_of_our_own_route(server: Guarded, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")  # NeMo sends keys by TLS only
    certificate = authority.sign("server")
    found = run(server, "nemo", certificate, label=LABEL, ca=str(authority.cert))
    texts = list(found["kserve"]["scores"])
    own = dict(zip(texts, server.live.answer(texts)["results"], strict=True))
    passed = {text: result["scores"][LABEL] < 0.99 for text, result in own.items()}
    assert set(passed.values()) == {True, False}
    for engine in ("vllm", "kserve", "fms"):
        assert found[engine]["passes"] == passed
    for text, result in own.items():
        assert found["kserve"]["scores"][text] == result["scores"]
        assert found["vllm"]["scores"][text] == {result["label"]: result["score"]}
        # NeMo's threshold is above the flag's, which stays, and NeMo compares the scores itself.
        flagged = {LABEL: result["scores"][LABEL]} if result["flagged"] else {}
        assert found["fms"]["scores"][text] == flagged
    for engine in ("vllm", "kserve"):
        assert "returned 404" in found[engine]["missing"]
        assert "no model 'none'" in found[engine]["missing"]
    for engine, bad_input in {"vllm": 400, "kserve": 422, "fms": 422}.items():
        for case, status in {"bad input": bad_input, "key": 401, "overload": 429}.items():
            assert f"returned {status}" in found[engine][case]


def test_litellms_guardrail_passes_blocks_and_fails_closed(server: Guarded) -> None:
    document = server.live.http.get("/v1/models/tiny/policy").json()["policy"]
    document["limits"] |= {"flag": "any", "windows": "any"}  # these calls bring their own
    assert server.live.put_policy(document).status_code == 200
    found = run(server, "litellm")
    assert [found[name] for name in ("single", "batch", "most")] == ["passes"] * 3
    assert re.fullmatch(
        rf"flagged by the classifier: text 1: {LABEL} [\d.]+; text 2: {LABEL} [\d.]+",
        found["blocked"],
    )
    assert found["windows"].startswith(f"flagged by the classifier: text 1: {LABEL} ")
    refused = {"bad input": 422, "missing": 404, "key": 401, "overload": 429}
    for name, status in refused.items():
        assert found[name].startswith("Generic Guardrail API failed: "), found[name]
        assert f"{status}" in found[name], found[name]


def test_litellms_proxy_stands_in_for_the_examples_gateway(
    bundle_folder: Path, tmp_path: Path
) -> None:
    example = ROOT / "docs" / "examples" / "guardrail"
    litellm = python_of("litellm").with_name("litellm")
    policy = json.loads((example / "policy.json").read_text())
    guard = policy["policy"]["profiles"]["guard"]
    guard |= {"exit": {"rule": "never"}, "flag": {LABEL: 0.0}}
    guard["windows"]["stride"] = 8
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    command = [sys.executable, example / "run.py", bundle_folder, "--litellm", litellm]
    command += ["--policy", tmp_path / "policy.json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = [line.strip() for line in ran.stdout.splitlines()[1::2]]
    assert len(answers) == 3
    assert all(each.startswith("400 flagged by the classifier: ") for each in answers), answers


@pytest.mark.parametrize(("name", "package"), [("kserve", "kserve"), ("nemo", "nemoguardrails")])
def test_the_lines_of_the_page_work(bundle_folder: Path, name: str, package: str) -> None:
    with serving_grpc(bundle_folder) as live:
        check_lines(live, package, str(python_of(name)))
