"""Random requests made from a server's own OpenAPI document, by Schemathesis."""

import json
import subprocess
import sysconfig
from pathlib import Path

from hypothesis import settings
from prometheus_client.parser import text_string_to_metric_families

from tests.serve.support.live_server import LiveServer

COMMAND = str(Path(sysconfig.get_path("scripts")) / "schemathesis")
CONFIG = Path(__file__).with_name("schemathesis.toml")
# Hypothesis makes as many by default; a profile that asks for more is a soak.
SHORT = 100


def fuzz(server: LiveServer, folder: Path, *options: str, key: str | None = None) -> None:
    """Send requests to every operation; each answer must be one that the document names.

    A short run sends the same requests every time.

    Args:
        server: may be told new policies.
        folder: for files of the run.
        options: of `schemathesis run`.
        key: sent with every request if not empty; None where the server has no keys.
    """
    document = server.http.get("/openapi.json").json()
    for operations in document["paths"].values():
        for operation in operations.values():
            del operation["responses"]["default"]  # would make every status a documented one
    del document["paths"]["/v1/models/{model}/policy/events"]  # has no end
    for unload in ("/v1/models/{model}/unload", "/v2/repository/models/{model}/unload"):
        del document["paths"][unload]  # would leave no model for the others
    (folder / "openapi.json").write_text(json.dumps(document))
    num_examples = settings.default.max_examples
    arguments = ["--url", f"http://127.0.0.1:{server.port}", "--no-color", *options]
    arguments += ["--max-examples", str(max(num_examples // 100, 5))]
    if num_examples <= SHORT:
        arguments.append("--generation-deterministic")
    if key is None:
        arguments += ["--exclude-checks", "ignored_auth"]
    elif key:
        # Beside it, none that Schemathesis makes up: of two, the server reads one.
        arguments += ["--generation-with-security-parameters", "false"]
        arguments += ["--header", f"X-API-Key: {key}"]
    done = subprocess.run(
        [COMMAND, "--config-file", CONFIG, "run", "openapi.json", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check_unharmed(server: LiveServer) -> None:
    """Check that a server answers, and that requests have not named series of its metrics."""
    assert server.http.get("/health/ready").status_code == 200
    assert server.metric("offramp_engine_up") >= 1
    routes = {*server.http.get("/openapi.json").json()["paths"], "/openapi.json", "other"}
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    labels = [sample.labels for family in families for sample in family.samples]
    assert {each["route"] for each in labels if "route" in each} <= routes
    assert {each["model"] for each in labels if "model" in each} == {"", "tiny"}
