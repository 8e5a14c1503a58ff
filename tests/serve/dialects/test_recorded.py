"""Requests that clients of other servers were seen to send, sent again without the clients.

`make clients` holds what the clients send against the same files.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.support.live_server import LiveServer, serving_bundles

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))


@pytest.fixture(scope="module")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    with serving_bundles(bundle_folder) as live:
        policy = live.http.get("/v1/models/tiny/policy").json()["policy"]
        policy["profiles"]["guard"] = {"exit": {"rule": "never"}, "flag": {"negative": 0.5}}
        policy["default"] = "guard"
        # LiteLLM's recorded requests bring flags of their own.
        policy["limits"] |= {"flag": "any", "windows": "any"}
        assert live.put_policy(policy).is_success
        yield live


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_recorded_requests_are_taken_as_they_are(server: LiveServer, file: Path) -> None:
    recorded = json.loads(file.read_text())
    assert len(recorded) > 3
    for sent in recorded:
        answer = server.http.request(
            sent["method"], sent["path"], headers=sent["headers"], json=sent["body"]
        )
        assert answer.status_code == sent["status"], answer.text
