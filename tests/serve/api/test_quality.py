"""GET /v1/models/{model}/quality; what audits find is in tests/serve/audits."""

from tests.serve.api.conftest import StartServer


def test_before_any_audit_every_profile_is_there(start_server: StartServer) -> None:
    server = start_server()
    policy = {"default": "fast", "profiles": {"fast": {"rule": "layer", "layer": 1}}}
    version = server.put_policy(policy).json()["version"]
    report = server.http.get("/v1/models/tiny/quality").json()
    assert (report["model"], report["version"]) == ("tiny", version)
    assert (report["share"], report["delta"]) == (0.01, 0.01)
    assert (report["on_broken_promise"], report["requests"]) == ("alert", [])
    assert set(report["profiles"]) == {"fast"}, "the default is this profile"
    fast = report["profiles"]["fast"]
    assert (fast["state"], fast["audits"], fast["interval"]) == ("no promise", 0, [0, 1])
