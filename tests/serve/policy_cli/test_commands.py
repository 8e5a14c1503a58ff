import json
import shutil
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from loadtest.http.server_process import free_port
from serve.access.keys import Key, new_key
from tests.serve.policy_cli.conftest import Offramp, answering
from tests.serve.support.live_server import serving_bundles


def versions(here: Offramp) -> list[int]:
    return [each["version"] for each in json.loads(here("history", "--json").said)["entries"]]


def test_a_day_of_an_operator(here: Offramp) -> None:
    first = here("show", "--json")
    assert json.loads(first.said)["version"] == 1
    change = "profiles.slow={rule: never}"

    tried = here("dry-run", change)
    assert tried.status == 0
    assert 'profiles.slow: {"rule": "never"} (new)' in tried.said

    stale = here("patch", change, "--version", 7)
    assert (stale.status, stale.said) == (3, "")
    assert "the policy is at version 1" in stale.error
    assert versions(here) == [1], "neither has changed anything"

    changed = here("patch", change, "--why", "for the night")
    assert changed.status == 0
    assert changed.said.splitlines()[1:] == ['  profiles.slow: {"rule": "never"} (new)']
    listed = here("history").said
    assert listed.index("version 2") < listed.index("for the night") < listed.index("version 1")
    differing = here("diff", 1, 2)
    assert (differing.status, differing.said) == (1, '  profiles.slow: {"rule": "never"} (new)\n')

    assert here("rollback", 1).status == 0
    assert here("diff", 1) == (0, "", "")
    assert versions(here) == [3, 2, 1]
    assert "\n  slow:\n    rule: never\n" in here("show", 2, "--document").said


def test_a_file_of_show_is_the_live_policy_until_it_is_edited(
    here: Offramp, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(here("show", "--document").said)
    assert here("diff", file).status == 0
    with file.open("a") as added:
        added.write("detectors: {}\n")
    assert here("diff", file).status == 0, "a default that is written out is no difference"
    file.write_text('{"default": {"rule": "entropy", "threshold": 2e-1}}')
    assert here("diff", file).status == 1
    assert here("set", file).status == 0
    assert "threshold: 0.2\n" in here("show", "--document").said


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("patch", "limits.overides=any"), 1, "limits.overides: unknown field"),
        (("patch", "default="), 2, "default=: must be PLACE=VALUE"),
        (("dry-run", "default=nowhere"), 1, "no profile 'nowhere'"),
        (("dry-run",), 2, "give changes"),
        (("set", "/nowhere.yaml"), 2, "/nowhere.yaml: No such file"),
        (("show", "99"), 1, "99"),
        (("diff", "99"), 2, "99"),
        (("rollback", "99"), 1, "99"),
        (("show", "--model", "other"), 1, "served are tiny"),
        (("show", "--url", "localhost:8000"), 2, "--url: must be such as http://"),
        (("show", "--key-file", "/dev/null"), 2, "/dev/null: must hold an API key"),
    ],
)
def test_what_was_wrong_is_said(
    still: str, offramp: Offramp, words: tuple[str, ...], status: int, message: str
) -> None:
    ran = offramp(words[0], "--url", still, *words[1:])
    assert ran.status == status
    assert message in ran.said + ran.error
    assert '"version":1,' in offramp("show", "--url", still, "--json").said


def test_a_server_that_is_not_reached_is_status_4(offramp: Offramp) -> None:
    ran = offramp("show", "--url", f"http://127.0.0.1:{free_port()}")
    assert (ran.status, ran.said) == (4, "")
    assert ran.error.endswith("Connection refused\n")


def test_keys_and_models_are_chosen(
    bundle_folder: Path, tmp_path: Path, offramp: Offramp, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, own = tmp_path / "keys.json", tmp_path / "key"
    key = Key.model_validate({"name": "ops", "sha256": "0" * 64, "scopes": ["admin"]})
    own.write_text(new_key(key, keys) + "\n")
    other = Path(shutil.copytree(bundle_folder, tmp_path / "other"))
    with serving_bundles(bundle_folder, other, keys=keys) as live:
        monkeypatch.setenv("OFFRAMP_URL", str(live.http.base_url))
        assert "OFFRAMP_KEY or --key-file" in offramp("show").error
        monkeypatch.setenv("OFFRAMP_KEY", "wrong")
        refused = offramp("show")
        assert refused.status == 1
        assert "unknown or revoked" in refused.error
        several = offramp("show", "--key-file", own)
        assert several.status == 2
        assert several.error.endswith("one of tiny, other\n")
        named = ("--key-file", own, "--model", "other")
        assert offramp("rollback", 1, *named).status == 0
        assert offramp("show", *named).said.startswith("version 2  other  2")
        assert "  ops  rollback" in offramp("show", *named).said


def test_no_key_follows_a_redirect(offramp: Offramp, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def moved(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        request.send_response(307)
        request.send_header("Location", "/elsewhere")
        request.end_headers()

    monkeypatch.setenv("OFFRAMP_KEY", "secret")
    with answering(moved) as url:
        ran = offramp("show", "--model", "m", "--url", url)
    assert ran.status == 1
    assert "answers 307, see /elsewhere" in ran.error
    assert asked == ["/v1/models/m/policy"]
