"""A bare ASGI server over the same classifier: how little the front can cost.

`python -m loadtest.bench.front.floor BUNDLE --precision P --port N`. It checks nothing, records
nothing, and writes its answers by hand. Only single-label models and plain texts.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

from serve.classifier.classifier import Classified, Classifier
from serve.classifier.options import EngineOptions
from serve.classifier.request import ModelRequest
from serve.engine.row import Answer
from serve.http.loading import assemble
from serve.policy.live import MemoryStore
from serve.rules import NeverRule
from serve.runtime.process_memory import keep_objects
from serve.tokenization.length_bounds import Text

_NEVER = NeverRule()
_DRAIN_S = 10.0


class Floor:
    """The ASGI app."""

    def __init__(self, classifier: Classifier) -> None:
        """Answer from one model whose engine runs."""
        self._classifier = classifier
        self._labels = [json.dumps(label) for label in classifier.bundle.manifest.labels]
        self._model = json.dumps(classifier.name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s = time.monotonic()
        if scope["method"] == "GET":  # /health/ready
            await _send(send, b"{}")
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        classified = await self._classifier.classify(_request(json.loads(body)))
        await _send(send, self._encoded(classified, began_s))

    def _encoded(self, classified: Classified, began_s: float) -> bytes:
        """Return the JSON that `/v1/classify` answers with."""
        answers, resolution = classified.answers, classified.resolution
        of_target = resolution.texts.items() if resolution else ()
        more = "".join([f',"{name}":{text}' for name, text in of_target])
        return (
            f'{{"model":{self._model},"policy_version":{classified.policy_version},'
            f'"score_scale":"{self._classifier.scores.score_scale}",'
            f'"results":[{",".join(map(self._result, answers))}],'
            f'"timing":{{"queue_ms":{1e3 * max(a.queue_s for a in answers):.3f},'
            f'"compute_ms":{1e3 * max(a.compute_s for a in answers):.3f},'
            f'"total_ms":{1e3 * (time.monotonic() - began_s):.3f}}}{more}}}'
        ).encode()

    def _result(self, answer: Answer) -> str:
        logits = answer.score_logits.tolist()
        largest = max(logits)
        shares = [math.exp(logit - largest) for logit in logits]
        total = sum(shares)
        best_first = sorted(range(len(logits)), key=logits.__getitem__, reverse=True)
        scores = [f"{self._labels[i]}:{shares[i] / total:.7g}" for i in best_first]
        best = answer.label if answer.label >= 0 else best_first[0]
        exits = self._classifier.bundle.manifest.exits
        signal = f"{answer.signal:.7g}" if math.isfinite(answer.signal) else "null"
        return (
            f'{{"label":{self._labels[best]},"score":{shares[best] / total:.7g},'
            f'"scores":{{{",".join(scores)}}},"exit":{{"layer":{exits[answer.exit_index].layer},'
            f'"answered_by":{exits[answer.head_index].layer},'
            f'"layers":{self._classifier.bundle.manifest.num_layers},'
            f'"reason":"{answer.reason.label}","signal":{signal}}}}}'
        )


def _request(fields: dict[str, Any]) -> ModelRequest:
    """Read `inputs` and `exit`: the name of a profile, or an object for the rule `never`."""
    inputs, choice = fields["inputs"], fields.get("exit")
    texts = [inputs] if isinstance(inputs, str) else inputs
    return ModelRequest(
        [Text(text) for text in texts], _NEVER if isinstance(choice, dict) else choice
    )


async def _send(send: Send, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def running(bundle: Path, precision: str) -> Iterator[Floor]:
    """Run the model of a bundle for a block."""
    catalog = assemble([bundle], EngineOptions(precision=precision), MemoryStore()).catalog
    catalog.set_baselines({})
    catalog.start()
    try:
        yield Floor(next(iter(catalog)))
    finally:
        catalog.stop(_DRAIN_S)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.front.floor")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    with running(options.bundle, options.precision) as app:
        keep_objects()
        uvicorn.run(
            app,
            host="127.0.0.1",
            port=options.port,
            http="httptools",
            lifespan="off",
            log_level="warning",
            access_log=False,
        )


if __name__ == "__main__":
    main()
