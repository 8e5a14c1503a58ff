"""Send a folder's policies to the server in the same pod, and keep them applied.

`sync_policies.py URL FOLDER APPLIED PERIOD_S`. FOLDER holds one policy per file, `MODEL.json`;
a mounted ConfigMap changes in place. A policy is sent when its file has changed and when the server
has restarted with its bundle's policy. A policy set by the API stays until then. The file APPLIED
exists while the server answers and every policy has been sent. The file OFFRAMP_KEY_FILE holds a
key with scope admin; it is read every time, because it may change. The script needs only Python.
"""

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

TIMEOUT_S = 10.0


class Refused(Exception):
    """The server refuses this policy and keeps its present one."""


class Sent(NamedTuple):
    """The text of the last policy sent, and whether the server accepted it."""

    text: str
    taken: bool


def main(url: str, folder: Path, applied: Path, period_s: float) -> None:
    """Send what is due, every `period_s` seconds."""
    sent: dict[str, Sent] = {}
    while True:
        if send_due(url, folder, sent):
            applied.touch()
        else:
            applied.unlink(missing_ok=True)
        time.sleep(period_s)


def send_due(url: str, folder: Path, sent: dict[str, Sent]) -> bool:
    """Send every policy that is due; return whether all of them were sent.

    Args:
        url: the server's address.
        folder: the folder of the policies.
        sent: the last policy sent, by model; updated here.
    """
    done = True
    for file in sorted(folder.glob("*.json")):
        model, text = file.stem, file.read_text()
        try:
            if is_due(url, model, text, sent.get(model)):
                send(url, model, text)
                sent[model] = Sent(text, taken=True)
        except Refused as refusal:
            sent[model] = Sent(text, taken=False)
            print(f"{model}: refused: {refusal}", file=sys.stderr, flush=True)
        except OSError as error:
            done = False
            print(f"{model}: trying again: {error}", file=sys.stderr, flush=True)
    return done


def is_due(url: str, model: str, text: str, last: Sent | None) -> bool:
    """Return whether the text is new, or the server has restarted without it."""
    if last is None or last.text != text:
        return True
    forgotten: bool = ask(f"{url}/v1/models/{model}/policy")["source"] == "bundle"
    return last.taken and forgotten


def send(url: str, model: str, text: str) -> None:
    """Replace the model's policy."""
    body = json.dumps({"policy": json.loads(text)}).encode()
    change = ask(f"{url}/v1/models/{model}/policy", body)
    print(f"{model}: applied as version {change['version']}", flush=True)


def ask(address: str, body: bytes | None = None) -> Any:
    """GET, or PUT a body; return the JSON of the answer.

    Raises:
        Refused: the server refuses the request (404, 422).
        OSError: no answer, or another error status.
    """
    method = "PUT" if body else "GET"
    request = urllib.request.Request(address, data=body, method=method, headers=headers())
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            message = error.read().decode(errors="replace")
        if error.code in (404, 422):
            raise Refused(message) from None
        raise


def headers() -> dict[str, str]:
    """Return the headers of a request, with the key if there is one."""
    file = os.environ.get("OFFRAMP_KEY_FILE")
    key = {"Authorization": f"Bearer {Path(file).read_text().strip()}"} if file else {}
    return {"Content-Type": "application/json", **key}


if __name__ == "__main__":
    # The first process of a container ignores SIGTERM unless it has a handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
