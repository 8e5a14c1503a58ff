"""Texts whose early answers are full depth's, and texts whose are not, for a tiny bundle."""

from functools import partial
from typing import Any

import httpx
import numpy as np

from tests.serve.support.alarms import audits_until
from tests.serve.support.ladders import NEVER, certificate, rung
from tests.serve.support.live_server import LiveServer
from tests.support.patience import until

DELTA, STRANGE = 0.01, 0.2
# All texts leave at one layer, so which answers differ is known before they are asked for.
RUNGS = [
    rung(NEVER, (0, 0, 0, 1), 0),
    rung({"rule": "layer", "layer": 3}, (0, 0, 1, 0), 0.0, certificate("disagreement", 0.01, 0.0)),
    rung({"rule": "layer", "layer": 2}, (0, 1, 0, 0), 0.0, certificate("disagreement", 0.02, 0.0)),
    rung({"rule": "layer", "layer": 1}, (1, 0, 0, 0), 0.0, certificate("disagreement", 0.03, 0.0)),
]
POLICY: dict[str, Any] = {
    "default": {"target": {"max_disagreement": 0.03}},
    "audit": {"share": 1.0, "max_queue_ms": 60_000.0},
    "guard": {"on_broken_promise": "safer", "delta": DELTA},
}


class Traffic:
    """A server's clients."""

    def __init__(self, server: LiveServer) -> None:
        """Find texts of both kinds: strange ones are answered as at full depth from layer 2 on."""
        self._server = server
        texts = [f"w{i} w{j} w{i + j}" for i in range(24) for j in range(8)]
        rules = ({"rule": "layer", "layer": layer} for layer in (1, 2, 3, 4))
        found = list(zip(texts, *(self._labels(texts, exit=rule) for rule in rules), strict=True))
        self._quiet = [text for text, *labels in found if len(set(labels)) == 1]
        deep = [each for each in found if len(set(each[2:])) == 1]
        self._strange = [text for text, first, *others in deep if first not in others]
        assert len(self._quiet) > 1
        assert len(self._strange) > 1

    def send(self, num_texts: int, strange: float = STRANGE) -> None:
        """Ask for texts, of which this share is strange."""
        self._labels(self._texts(num_texts, strange))

    def differing(self, **fields: Any) -> float:
        """Return how many answers to shifted texts, live ones by default, are not full depth's."""
        texts = self._texts(50, STRANGE)
        pairs = zip(self._labels(texts, **fields), self._labels(texts, exit=NEVER), strict=True)
        return float(np.mean([live != full for live, full in pairs]))

    def _texts(self, number: int, strange: float) -> list[str]:
        num_strange = round(strange * number)
        quiet = np.resize(self._quiet, number - num_strange)
        return list(map(str, [*np.resize(self._strange, num_strange), *quiet]))

    def _labels(self, texts: list[str], **fields: Any) -> list[str]:
        parts = (texts[place : place + 48] for place in range(0, len(texts), 48))
        answers = [until(partial(self._answer, part, **fields)) for part in parts]
        return [each["label"] for answer in answers for each in answer["results"]]

    def _answer(self, texts: list[str], **fields: Any) -> dict[str, Any] | None:
        """Return the answer on a connection of its own; None if its replica is just killed."""
        fresh = LiveServer(self._server.port)
        with fresh.http:
            try:
                return fresh.answer(texts, **fields)
            except httpx.TransportError:
                return None


def quality(server: LiveServer) -> dict[str, Any]:
    """Return what audits say of the default, with the version that it is about."""
    report = _asked(server, "quality")
    return {"version": report["version"], **report["profiles"]["default"]}


def policy(server: LiveServer) -> dict[str, Any]:
    """Return the live policy."""
    return _asked(server, "policy")


def judged(server: LiveServer, version: int, drawn: int) -> bool:
    """Tell whether so many texts of a version are counted, or another version is live."""
    found = quality(server)
    counted = found["audits"] + found["skipped"] >= drawn
    return found["version"] > version or (counted and found["state"] != "broken")


def break_promise(server: LiveServer, traffic: Traffic, epsilon: float, step: int) -> None:
    """Send shifted texts until the guardrail acts, which the table gives so many audits for."""
    before = quality(server)
    drawn, most = before["audits"] + before["skipped"], audits_until(epsilon, DELTA, STRANGE)[-1]
    while (found := quality(server))["version"] == before["version"]:
        assert found["audits"] < most, "the guardrail acts later than the table says"
        traffic.send(step)
        drawn += step
        until(partial(judged, server, before["version"], drawn))


def _asked(server: LiveServer, what: str) -> dict[str, Any]:
    fresh = LiveServer(server.port)
    with fresh.http:
        found: dict[str, Any] = fresh.http.get(f"/v1/models/tiny/{what}").raise_for_status().json()
        return found
