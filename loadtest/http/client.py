"""A small client of the HTTP API."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from serve.errors import OfframpError

Json: TypeAlias = dict[str, Any]


class ApiError(OfframpError):
    """The server refused, failed, or could not be reached."""


class Resolved(NamedTuple):
    """What the target of a request, of its profile or of the default has become."""

    rule: Json
    expected_layers: float  # mean per text
    certificate: Json | None

    @classmethod
    def of(cls, reply: Json) -> "Resolved | None":
        """Read an answer; None if it did not come from a target."""
        if "exit_rule" not in reply:
            return None
        return cls(reply["exit_rule"], reply["expected_layers"], reply["certificate"])


class Answer(NamedTuple):
    """The server's answer for one text."""

    model: str
    label: str
    score: float
    layer: int  # exit layer
    layers: int  # the model's depth
    reason: str
    policy_version: int
    resolved: Resolved | None = None


class LivePolicy(NamedTuple):
    """A policy document with its version."""

    version: int
    document: Json


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

    def classify(self, text: str, rule: Json | None = None) -> Answer:
        """Classify one text by a rule or a target; without, the policy's default applies."""
        body = {"inputs": text} | ({"exit": rule} if rule else {})
        reply = self._json("POST", "/v1/classify", body)
        (result,) = reply["results"]
        return Answer(
            model=reply["model"],
            label=result["label"],
            score=result["score"],
            layer=result["exit"]["layer"],
            layers=result["exit"]["layers"],
            reason=result["exit"]["reason"],
            policy_version=reply["policy_version"],
            resolved=Resolved.of(reply),
        )

    def classify_all(self, texts: Sequence[str], rule: Json) -> list[Json]:
        """Classify texts in one request; return their results as the API writes them."""
        reply = self._json("POST", "/v1/classify", {"inputs": list(texts), "exit": rule})
        results: list[Json] = reply["results"]
        return results

    def models(self) -> list[Json]:
        """Return the served models: names, labels, exits and more."""
        served: list[Json] = self._json("GET", "/v1/models")["models"]
        return served

    def policy(self, model: str) -> LivePolicy:
        """Return the live policy."""
        reply = self._json("GET", f"/v1/models/{model}/policy")
        return LivePolicy(reply["version"], reply["policy"])

    def replace_policy(self, model: str, new: LivePolicy) -> LivePolicy:
        """Replace the policy of version `new.version`; return it with its new version."""
        body = {"policy": new.document, "version": new.version}
        reply = self._json("PUT", f"/v1/models/{model}/policy", body)
        return LivePolicy(reply["version"], reply["policy"])

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
