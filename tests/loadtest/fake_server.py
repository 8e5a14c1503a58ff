"""A server of the API whose model is a formula; runs in a thread, or alone as a child process.

The shorter the text and the higher the threshold, the earlier it leaves. Faults are named when it
is made, or on the command line.
"""

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LAYERS = 6
MODEL = "tiny"
BY_TARGET = {"rule": "entropy", "threshold": 0.3}
CERTIFICATE = {"loss": "disagreement", "epsilon": 0.01, "delta": 0.05, "n": 3000, "observed": 0}
# Without it, both sides would do nothing but count answers, thousands a second.
MODEL_S = 0.01


class FakeServer(ThreadingHTTPServer):
    """Counts exits and keeps a policy as the real one does, except for its faults."""

    daemon_threads = True

    def __init__(self, port: int = 0, faults: tuple[str, ...] = ()) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.faults = faults
        self.lock = threading.Lock()
        self.exits: Counter[tuple[int, str]] = Counter()
        self.tries = itertools.count()
        self.rules: list[dict[str, Any]] = []
        self.version = 1
        self.policy: dict[str, Any] = {"default": {"rule": "entropy", "threshold": 0.2}}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def leave(self, text: str, rule: dict[str, Any]) -> dict[str, Any]:
        depth = len(text.split()) // 4 + 1 + round(3 * (0.6 - rule.get("threshold", 0.6)))
        layer = min(LAYERS, depth)
        reason = "final" if layer == LAYERS else "confident"
        with self.lock:
            self.rules.append(rule)
            if "forgets to count" not in self.faults:
                self.exits[layer, reason] += 1
        return {"layer": layer, "layers": LAYERS, "reason": reason, "signal": 0.1}

    def classify(self, request: dict[str, Any]) -> dict[str, Any]:
        time.sleep(MODEL_S)
        texts = request["inputs"]
        texts = [texts] if isinstance(texts, str) else texts
        wish = request.get("exit") or self.policy["default"]
        rule = BY_TARGET if "target" in wish else wish
        answer = {"label": "positive", "score": 0.9, "scores": {"positive": 0.9, "negative": 0.1}}
        results = [answer | {"exit": self.leave(text, rule)} for text in texts]
        became = {"exit_rule": rule, "expected_layers": 2.5, "certificate": CERTIFICATE}
        tells = "target" in wish and "keeps what targets become" not in self.faults
        return {
            "model": MODEL,
            **(became if tells else {}),
            "policy_version": 1 if "answers under an old version" in self.faults else self.version,
            "results": results[1:] if "drops a result" in self.faults else results,
            "timing": {"queue_ms": 0.1, "compute_ms": 0.2, "total_ms": 0.3},
        }

    def replace_policy(self, update: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        if "ignores the policy" not in self.faults:
            self.policy = update["policy"]
        return self.live_policy()

    def live_policy(self) -> dict[str, Any]:
        return {"model": MODEL, "version": self.version, "policy": self.policy}

    def metrics(self) -> str:
        with self.lock:
            lines = [
                f'offramp_exits_total{{layer="{layer}",model="{MODEL}",reason="{reason}",'
                f'replica="a"}} {count}.0'
                for (layer, reason), count in sorted(self.exits.items())
            ]
        histogram = f'offramp_exit_layer_bucket{{le="+Inf",model="{MODEL}",reason="confident"}} 1.0'
        types = ["# TYPE offramp_exits_total counter", "# TYPE offramp_exit_layer histogram"]
        return "\n".join([types[0], *lines, types[1], histogram, ""])


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path == "/health/ready":
            self._reply(503 if "is never ready" in self.server.faults else 200, {"status": "ok"})
        elif self.path == "/metrics":
            self._reply(200, self.server.metrics())
        elif self.path == "/v1/models":
            self._reply(200, {"models": [{"name": MODEL, "labels": ["negative", "positive"]}]})
        else:
            self._reply(200, self.server.live_policy())

    def do_PUT(self) -> None:
        self._reply(200, self.server.replace_policy(self._body()))

    def do_POST(self) -> None:
        request, faults = self._body(), self.server.faults
        batch = isinstance(request["inputs"], list)
        if "refuses everything" in faults or ("refuses batches" in faults and batch):
            problem = {"code": "too_many_inputs", "message": "at most one text"}
            self._reply(422, {"error": problem})
        elif "hangs up" in faults or self._odd_try("hangs up at every other try"):
            self.close_connection = True
        elif self._odd_try("is busy at every other try"):
            self._reply(503, {"error": {"code": "unavailable", "message": "come back"}})
        elif "never answers" in faults:
            threading.Event().wait()
        elif "speaks nonsense" in faults:
            self._reply(200, "<html>")
        else:
            self._reply(200, self.server.classify(request))

    def _odd_try(self, fault: str) -> bool:
        return fault in self.server.faults and next(self.server.tries) % 2 == 0

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return body

    def _reply(self, status: int, content: dict[str, Any] | str) -> None:
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


def main(port: int, faults: tuple[str, ...]) -> None:
    if "fails to start" in faults:
        sys.exit("no bundle here")
    if "ignores SIGTERM" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "leaves a child" in faults:
        subprocess.Popen(["sleep", "600"])
    if "ends with an error" in faults:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("could not save"))
    FakeServer(port, faults).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[-1]), tuple(sys.argv[1:-1]))
