"""A small client of the HTTP API, whose answers are dictionaries as the API writes them."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, TypeAlias

from serve.errors import OfframpError

Json: TypeAlias = dict[str, Any]


class ApiError(OfframpError):
    """The server refused, failed, or could not be reached."""


class Client:
    """A client of one server; every failure is an `ApiError`."""

    def __init__(self, url: str, timeout_s: float = 30.0) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        # Without this, a proxy named in the environment would get requests for 127.0.0.1.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ready(self) -> bool:
        """Whether /health/ready says so; False also when nothing listens."""
        try:
            self._call("GET", "/health/ready")
        except ApiError:
            return False
        return True

    def classify(self, inputs: str | Sequence[str], wish: Json | None = None) -> Json:
        """Classify one text, or several in one request.

        Args:
            inputs: the text or texts.
            wish: a rule or a target; without, the policy's default applies.
        """
        body = {"inputs": inputs} | ({"exit": wish} if wish else {})
        return self._json("POST", "/v1/classify", body)

    def models(self) -> list[Json]:
        """Return the served models: names, labels, exits and more."""
        served: list[Json] = self._json("GET", "/v1/models")["models"]
        return served

    def policy(self, model: str) -> Json:
        """Return the live policy with its version."""
        return self._json("GET", f"/v1/models/{model}/policy")

    def replace_policy(self, model: str, live: Json, policy: Json) -> Json:
        """Replace the live policy; return the new one with its version."""
        body = {"policy": policy, "version": live["version"]}
        return self._json("PUT", f"/v1/models/{model}/policy", body)

    def start_rollout(self, model: str, asked: Json) -> Json:
        """Start a rollout and return its report."""
        return self._json("POST", f"/v1/models/{model}/policy/rollout", asked)

    def rollout(self, model: str) -> Json:
        """Return the report of the rollout that runs, or of the last one."""
        return self._json("GET", f"/v1/models/{model}/policy/rollout")

    def metrics(self) -> str:
        """Return the text of /metrics, which covers every replica."""
        return self._call("GET", "/metrics").decode()

    def _json(self, method: str, path: str, body: Json | None = None) -> Json:
        reply = self._call(method, path, body)
        try:
            parsed: Json = json.loads(reply)
        except ValueError:
            raise ApiError(f"{method} {path}: no JSON but {reply[:80]!r}") from None
        return parsed

    def _call(self, method: str, path: str, body: Json | None = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, json_headers(), method=method)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                reply: bytes = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(f"{method} {path}: {error.code} {_message(error.read())}") from None
        except OSError as error:
            raise ApiError(f"{method} {self.url}{path}: {error}") from None
        return reply


def json_headers() -> dict[str, str]:
    """Return the headers of a request with JSON, and the key of `OFFRAMP_KEY` if it is set."""
    key = os.environ.get("OFFRAMP_KEY")
    return {"Content-Type": "application/json"} | ({"X-API-Key": key} if key else {})


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return body.decode(errors="replace")[:200]
