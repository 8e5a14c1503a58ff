"""Random requests from the OpenAPI document to two replicas that know keys."""

from pathlib import Path

import pytest

from tests.serve.support.keys import make_key
from tests.serve.support.openapi_fuzz import check_unharmed, fuzz
from tests.serve.support.server_process import ServerProcess

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_replicas_give_documented_answers_only(bundle_folder: Path, tmp_path: Path) -> None:
    admin = make_key(tmp_path, "admin")
    keys = ("--keys", tmp_path / "keys.json")
    with ServerProcess(bundle_folder, "--replicas", "2", "--port", "0", *keys) as process:
        server, replicas = process.client(), process.replicas()
        for key in ("", admin):
            fuzz(server, tmp_path, "--phases", "examples,fuzzing", key=key)
        server.http.headers["X-API-Key"] = admin
        check_unharmed(server)
        assert process.replicas() == replicas
