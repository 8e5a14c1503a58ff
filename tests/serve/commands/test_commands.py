"""`offramp policy`, `rollout` and `models` about real servers."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from loadtest.http.server_process import OFFRAMP, free_port
from tests.serve.commands.conftest import Offramp
from tests.serve.support.http_answers import answering, sending
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.server_process import Ran
from tests.serve.support.task_bundles import Kind, write_task_bundle
from tests.support.patience import until


def versions(here: Offramp) -> list[int]:
    listed = json.loads(here("policy", "history", "--json").said)
    return [each["version"] for each in listed["entries"]]


def test_a_day_of_an_operator(here: Offramp) -> None:
    first = here("policy", "show", "--json")
    assert json.loads(first.said)["version"] == 1
    change = "profiles.slow={rule: never}"

    tried = here("policy", "dry-run", change)
    assert tried.status == 0
    assert 'profiles.slow: {"rule": "never"} (new)' in tried.said

    stale = here("policy", "patch", change, "--version", 7)
    assert (stale.status, stale.said) == (3, "")
    assert versions(here) == [1], "neither has changed anything"

    changed = here("policy", "patch", change, "--why", "for the night")
    assert changed.status == 0
    assert changed.said.splitlines()[1:] == ['  profiles.slow: {"rule": "never"} (new)']
    listed = here("policy", "history").said
    assert listed.index("version 2") < listed.index("for the night") < listed.index("version 1")
    differing = here("policy", "diff", 1, 2)
    assert (differing.status, differing.said) == (1, '  profiles.slow: {"rule": "never"} (new)\n')

    assert here("policy", "rollback", 1).status == 0
    assert here("policy", "diff", 1) == (0, "", "")
    assert versions(here) == [3, 2, 1]
    assert "\n  slow:\n    rule: never\n" in here("policy", "show", 2, "--document").said


def test_a_file_of_show_is_the_live_policy_until_it_is_edited(
    here: Offramp, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(here("policy", "show", "--document").said)
    assert here("policy", "diff", file).status == 0
    with file.open("a") as added:
        added.write("detectors: {}\n")
    assert here("policy", "diff", file).status == 0, "a default that is written out is none"
    file.write_text('{"default": {"rule": "entropy", "threshold": 2e-1}}')
    assert here("policy", "diff", file).status == 1
    assert here("policy", "set", file).status == 0
    assert "threshold: 0.2\n" in here("policy", "show", "--document").said


START = ("rollout", "start", "default={rule: layer, layer: 1}", "--layers", 3)


@pytest.mark.parametrize(
    ("words", "status", "named"),
    [
        (("policy", "patch", "limits.overides=any"), 1, "limits.overides"),
        (("policy", "patch", "default="), 2, "default="),
        (("policy", "dry-run", "default=nowhere"), 1, "nowhere"),
        (("policy", "dry-run"), 2, "--file"),
        (("policy", "set", "/nowhere.yaml"), 2, "/nowhere.yaml"),
        (("policy", "set", "/dev/zero"), 2, "/dev/zero"),
        (("policy", "show", "99"), 1, "99"),
        (("policy", "diff", "99"), 2, "99"),
        (("policy", "rollback", "99"), 1, "99"),
        (("policy", "show", "--model", "other"), 1, "tiny"),
        (("policy", "show", "--url", "localhost:8000"), 2, "--url"),
        (("policy", "show", "--key-file", "/dev/zero"), 2, "/dev/zero"),
        (("rollout", "start", "default=fast"), 2, "--disagreement"),
        (("rollout", "start", "--layers", 3), 2, "--file"),
        ((*START, "--steps", "5;10"), 2, "--steps"),
        ((*START, "--steps", "10,5"), 1, "steps"),
        ((*START, "--on-inconclusive", "hope"), 1, "on_inconclusive"),
        (("rollout", "promote"), 2, "--version"),
        (("rollout", "promote", "--version", "1"), 3, "rollout"),
        (("models", "load", "third"), 1, "--model-repository"),
        (("models", "load", "../x"), 2, "../x"),
        (("policy", "show", "--model", ".."), 2, ".."),
        (("models", "alias", "mood"), 2, "--remove"),
        (("models", "alias", "mood", "tiny", "--remove"), 2, "--remove"),
        (("models", "alias", "mood", ""), 1, "model: "),
        (("models", "load", "tiny", "--bundle", ""), 1, "bundle: "),
        (("top", "--once", "--model", "third"), 1, "tiny"),
    ],
)
def test_what_was_wrong_is_named_and_changes_nothing(
    still: str, offramp: Offramp, words: tuple[object, ...], status: int, named: str
) -> None:
    at = () if "--url" in words else ("--url", still)
    ran = offramp(*words, *at)
    assert ran.status == status
    assert named in ran.said + ran.error
    assert json.loads(offramp("policy", "show", "--url", still, "--json").said)["version"] == 1


def test_keys_and_models_are_chosen(
    bundle_folder: Path, tmp_path: Path, offramp: Offramp, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "key"
    own.write_text(make_key(tmp_path, "admin") + "\n")
    other = Path(shutil.copytree(bundle_folder, tmp_path / "other"))
    with serving_bundles(bundle_folder, other, keys=tmp_path / "keys.json") as live:
        monkeypatch.setenv("OFFRAMP_URL", str(live.http.base_url))
        assert "OFFRAMP_KEY or --key-file" in offramp("policy", "show").error
        monkeypatch.setenv("OFFRAMP_KEY", "wrong")
        assert offramp("policy", "show").status == offramp("top", "--once").status == 1
        several = offramp("policy", "show", "--key-file", own)
        assert several.status == 2
        assert several.error.endswith("one of tiny, other\n")
        named = ("--key-file", own, "--model", "other")
        assert offramp("policy", "rollback", 1, *named).status == 0
        assert offramp("policy", "show", *named).said.startswith("version 2  other  2")
        once = offramp("top", "--once", "--interval", 0.1, *named).said
        assert [line for line in once.splitlines() if "policy" in line] == ["other  policy 2"]


def test_a_server_that_is_not_reached_is_status_4(offramp: Offramp) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    for command in (("policy", "show"), ("policy", "watch"), ("top", "--once")):
        ran = offramp(*command, "--url", url)
        assert (ran.status, ran.said) == (4, "")
        assert "Connection refused" in ran.error


def test_no_key_follows_a_redirect_and_no_message_moves_the_cursor(
    offramp: Offramp, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def moved(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        request.send_response(307)
        request.send_header("Location", "/elsewhere\x1b[2J")
        request.end_headers()

    monkeypatch.setenv("OFFRAMP_KEY", "secret")
    with answering(moved) as url:
        ran = offramp("policy", "show", "--model", "m", "--url", url)
    assert ran.status == 1
    assert "307" in ran.error
    assert "\x1b" not in ran.error
    assert asked == ["/v1/models/m/policy"]


HOSTILE = {"model": "m\x1b[2J", "state": "running\x07", "percent": 5, "step": 0, "steps": [5]}
HOSTILE |= {
    "verdict": "\u202e",
    "arms": {"live\x9b": {"disagreement": {"audits": 1, "skipped": 0}}},
}
HOSTILE |= {"history": [], "entries": [{"version": 1, "why": "\x1b]0;owned\x07"}]}


@pytest.mark.parametrize(
    ("words", "body", "status"),
    [
        (("rollout", "status"), json.dumps(HOSTILE), 0),
        (("policy", "history"), json.dumps(HOSTILE), 0),
        (("rollout", "status"), json.dumps(HOSTILE | {"percent": "\x1b[2J"}), 4),
        (("policy", "history"), '{"entries": [NaN]}', 4),
        (("policy", "history"), "[1]", 4),
        (("policy", "show"), "\x1b[2J", 4),
        (("policy", "show"), "[" * 100_000, 4),
        (("models", "list"), "{}", 4),
    ],
)
def test_what_a_hostile_server_says_is_cleaned_or_refused(
    offramp: Offramp, words: tuple[str, ...], body: str, status: int
) -> None:
    with answering(sending(body, "application/json")) as url:
        ran = offramp(*words, "--url", url, *(() if words[0] == "models" else ("--model", "m")))
    assert ran.status == status, ran.error
    assert all(c.isprintable() or c == "\n" for c in ran.said + ran.error)


def test_a_key_is_shown_to_no_proxy(offramp: Offramp, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        seen.append((request.path, request.headers["Authorization"]))
        request.send_error(502)

    def show(url: str, **variables: str) -> Ran:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            return offramp("policy", "show", "--model", "m", "--url", url)

    port = free_port()
    with answering(answer) as url:
        proxy = {"http_proxy": f"http://user:secret@{url.removeprefix('http://')}"}
        for own in ("127.0.0.1", "localhost", "127.1", "[::1]", "LOCALHOST."):
            ran = show(f"http://{own}:{port}", OFFRAMP_KEY="k", **proxy)
            assert (ran.status, "proxy" in ran.error) == (4, False), ran.error
        ran = show("http://server.invalid", OFFRAMP_KEY="k", no_proxy=".invalid", **proxy)
        assert (ran.status, "proxy" in ran.error) == (4, False)
        refused = show("http://server.invalid", OFFRAMP_KEY="k", **proxy)
        assert refused.status == 2
        assert seen == []
        named = show("http://server.invalid", **proxy)
    assert named.status == 4
    for ran in (refused, named):
        assert f"through the proxy {url.removeprefix('http://')}" in ran.error
        assert "secret" not in ran.error
    assert seen == [("http://server.invalid/v1/models/m/policy", None)]


@pytest.mark.parametrize(
    ("shell", "variables", "status"),
    [
        ('"$0" "$@" >/dev/null', {"PYTHONIOENCODING": "ascii"}, 0),
        ('"$0" "$@" >/dev/null', {"PYTHONIOENCODING": "latin-1"}, 0),
        ('"$0" "$@" >/dev/full', {}, 5),
        ('"$0" "$@" >&-', {}, 0),
    ],
)
def test_no_outcome_depends_on_what_the_terminal_can_show(
    live: LiveServer, shell: str, variables: dict[str, str], status: int
) -> None:
    words = ("policy", "patch", "profiles.slow={rule: never}", "--why", "für 夜")
    url = ("--url", str(live.http.base_url))
    done = subprocess.run(
        ["sh", "-c", shell, OFFRAMP, *words, *url],
        stderr=subprocess.PIPE,
        env={**os.environ, **variables},
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == status, done.stderr
    assert live.http.get("/v1/models/tiny/policy").json()["version"] == 2


# Of each bound, what has been found and what is said of it.
INTERVAL = r" \[0, [0-9.]+\]"
SHOWN = rf"candidate\n(  .*\n)*  slow +0{INTERVAL}\n  errors +0{INTERVAL}  inconclusive\n"


def test_rollout_from_a_terminal(here: Offramp, live: LiveServer) -> None:
    assert here("rollout", "status").said == "tiny: there was no rollout\n"
    start = (*START, "--errors", 0.1, "--p99-ms", 60_000)
    started = here(*start, "--steps", "50,100", "--why", "faster")
    assert started.status == 0
    assert started.said.startswith("tiny  running  50 %  step 1 of 2\n  verdict: too early\n")
    for _ in range(10):
        live.answer("w1")
    until(lambda: "layers         1 [1, " in here("rollout", "status").said)
    until(lambda: re.search(SHOWN, here("rollout", "status").said))
    assert here(*start).status == 3
    assert here("rollout", "pause", "--version", 1).status == 3
    assert "paused" in here("rollout", "pause", "--why", "lunch").said
    assert "running" in here("rollout", "resume").said
    seen = ("--version", json.loads(here("rollout", "status", "--json").said)["version"])
    assert json.loads(here("rollout", "promote", *seen, "--json").said)["percent"] == 100
    ended = here("rollout", "promote", "--version", seen[1] + 1)
    assert ended.said.startswith("tiny  promoted  100 %")
    assert "version 2  " in ended.said
    assert here("rollout", "abort").status == 3
    assert here(*start).status == 0
    changed = here("policy", "patch", "profiles.slow={rule: never}")
    assert changed.said.splitlines()[-1].startswith("  rollout superseded: ")


@pytest.fixture
def two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    """Serve `first` of a repository that has `second` too."""
    for name in ("first", "second"):
        write_task_bundle(tmp_path, Kind("single_label"), name)
    with serving_bundles(tmp_path / "first", model_repository=tmp_path) as server:
        monkeypatch.setenv("OFFRAMP_URL", str(server.http.base_url))
        yield server


def test_a_model_takes_over_from_another_by_its_alias_and_goes_back(
    offramp: Offramp, two_models: LiveServer
) -> None:
    def run(*words: str) -> str:
        ran = offramp("models", *words)
        assert ran.status == 0, ran.error
        return ran.said

    assert run("alias", "default", "first") == "version 2  first\n  default -> first\n"
    assert "second  not loaded\n" in run("list")
    run("load", "green", "--bundle", "second", "--why", "better")
    assert run("alias", "default", "green").splitlines() == [
        "version 4  first, green (bundle second)",
        "  default -> green",
    ]
    assert two_models.answer("w1")["model"] == "green"
    busy = offramp("models", "unload", "green")
    assert (busy.status, busy.said) == (1, "")
    run("alias", "default", "first")
    assert two_models.answer("w1")["model"] == "first"
    run("unload", "green")
    listed = run("history")
    assert "load  model green, bundle second, why better" in listed
    assert "alias  alias default, model first, from green" in listed
    removed = run("alias", "default", "--remove", "--why", "one is enough", "--json")
    assert json.loads(removed)["aliases"] == {}
    assert "alias  alias default, from first, why one is enough" in run("history")
    assert "first  bundle " in run("list")
