"""A gateway in small: it asks Offramp before it asks the language model, as LiteLLM's proxy does.

If Offramp does not answer, no call passes: "could not look" is not "nothing found".
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

GUARDRAIL = "/beta/litellm_basic_guardrail_api"
TIMEOUT_S = 5.0


def post(url: str, body: Any) -> Any:
    """Return the JSON that comes back."""
    content = json.dumps(body).encode()
    request = Request(url, content, {"Content-Type": "application/json"})
    with urlopen(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


class Gateway(BaseHTTPRequestHandler):
    """Forwards the chats that the guardrail lets pass."""

    protocol_version = "HTTP/1.1"
    model = offramp = ""

    def do_POST(self) -> None:
        """Ask the guardrail, then the model."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [message["content"] for message in asked["messages"]]
        try:
            found = post(self.offramp + GUARDRAIL, {"texts": texts, "input_type": "request"})
        except (HTTPError, URLError, TimeoutError) as error:
            self._send(503, {"error": {"message": f"the guardrail does not answer: {error}"}})
            return
        if found["action"] == "BLOCKED":
            self._send(400, {"error": {"message": found["blocked_reason"]}})
            return
        self._send(200, post(self.model + "/chat/completions", asked))

    def _send(self, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Write no log."""


if __name__ == "__main__":
    Gateway.model, Gateway.offramp = sys.argv[2:4]
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Gateway).serve_forever()
