import pytest

from tests.serve.support.live_server import LiveServer, Problem

ROUTES = [
    ("POST", "/v1/classify"),
    ("GET, HEAD", "/v1/models"),
    ("GET, HEAD", "/v1/models/tiny"),
    ("GET, HEAD, PUT, PATCH", "/v1/models/tiny/policy"),
    ("GET, HEAD, POST", "/v1/models/tiny/policy/rollout"),
    ("POST", "/v1/models/tiny/policy/rollout/abort"),
    ("POST", "/v1/models/tiny/load"),
    ("POST", "/v1/models/tiny/unload"),
    ("PUT, DELETE", "/v1/aliases/tiny"),
    ("GET, HEAD", "/v1/aliases"),
    ("GET, HEAD", "/health/live"),
    ("GET, HEAD", "/health/ready"),
    ("GET, HEAD", "/metrics"),
]


UNKNOWN_PATHS = """
    /nowhere /v1 /healthy /v1/classify/ /v1/models/ /v1/models/tiny/
    /v1/models/tiny/policy/ /v1/models/tiny/nothing /metrics/ /docs/ /v1//classify
    /v1/../v1/nothing /v1/models/a%2Fb /%00 /%ff%fe
"""


@pytest.mark.parametrize("path", [*UNKNOWN_PATHS.split(), "/" + "x" * 8_000])
def test_unknown_path_is_a_404_in_json(server: LiveServer, path: str) -> None:
    problem = Problem.of(server.http.get(path))
    assert (problem.status, problem.code) == (404, "not_found")


@pytest.mark.parametrize("name", ["nope", "TINY", "%00", "%ff", "..", "t\u00efny", "x" * 5000])
@pytest.mark.parametrize(
    "path",
    [f"/v1/models/{{}}{below}" for below in ("", "/policy", "/policy/events", "/quality")],
)
def test_unknown_model_is_a_404_in_json(server: LiveServer, path: str, name: str) -> None:
    name = name.replace("..", "%2e%2e")  # clients resolve the dots themselves
    problem = Problem.of(server.http.get(path.format(name)))
    assert (problem.status, problem.code) == (404, "unknown_model")


@pytest.mark.parametrize(
    ("allowed", "path", "method"),
    [
        (allowed, path, method)
        for allowed, path in ROUTES
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
        if method not in allowed
    ],
)
def test_wrong_method_is_a_405_in_json(
    server: LiveServer, allowed: str, path: str, method: str
) -> None:
    headers = {"Content-Type": "application/json"}
    response = server.http.request(method, path, headers=headers)
    assert response.headers["allow"] == allowed
    assert Problem.of(response)[:2] == (405, "method_not_allowed")


@pytest.mark.parametrize(
    ("status", "path"),
    [
        *((200 if "GET" in allowed else 405, path) for allowed, path in ROUTES),
        (404, "/nowhere"),
        (404, "/v1/models/nope"),
        (200, "/docs"),
    ],
)
def test_head_says_what_get_says_but_for_the_body(
    server: LiveServer, status: int, path: str
) -> None:
    response, got = server.http.head(path), server.http.get(path)
    assert (response.status_code, response.content) == (status, b"")
    assert got.status_code == status
    if path != "/metrics":  # which tells of every request
        assert response.headers["content-length"] == got.headers["content-length"]


@pytest.mark.parametrize(
    ("body", "code", "model"),
    [
        ({"inputs": ["w1"] * 257}, "too_many_inputs", "tiny"),
        ({"inputs": "w1", "exit": "nope"}, "unknown_profile", "tiny"),
        ({"inputs": 3}, "invalid_request", ""),
        ({"inputs": "w1", "model": "nope"}, "unknown_model", ""),
    ],
)
def test_every_refusal_is_counted_by_its_code(
    server: LiveServer, body: dict[str, object], code: str, model: str
) -> None:
    def counted() -> tuple[float, float]:
        return (
            server.metric("offramp_rejected_total", code=code, model=model),
            server.metric("offramp_requests_total", route="/v1/classify", model=model),
        )

    rejected, requests = counted()
    assert Problem.of(server.http.post("/v1/classify", json=body)).code == code
    assert counted() == (rejected + 1, requests + 1)
