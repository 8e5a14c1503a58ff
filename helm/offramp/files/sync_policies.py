"""Send a folder's policies to the server in the same pod, and keep them applied.

`sync_policies.py URL FOLDER APPLIED PERIOD_S`. FOLDER holds one policy per file, `MODEL.json`;
a mounted ConfigMap changes in place. A policy is sent when its file has changed and when the server
has restarted with its bundle's policy. A policy set by the API stays until then. The file APPLIED
exists from the time on when every policy has been taken, while the server answers. A policy that is
refused later leaves the one before it live, and the file there. The file OFFRAMP_KEY_FILE holds a
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
# The server is in the same pod: no proxy of the environment shall see the key.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Refused(Exception):
    """The server refuses this policy and keeps its present one."""


class Sent(NamedTuple):
    """The text of the last policy sent, and why the server has refused it; empty if it has not."""

    text: str
    refusal: str = ""


def main(url: str, folder: Path, applied: Path, period_s: float) -> None:
    """Send what is due, every `period_s` seconds."""
    sent: dict[str, Sent] = {}
    while True:
        mark(applied, send_due(url, folder, sent))
        time.sleep(period_s)


def mark(applied: Path, all_apply: bool | None) -> None:
    """Make or remove the file; leave it as it is where that is None."""
    if all_apply:
        applied.touch()
    elif all_apply is False:
        applied.unlink(missing_ok=True)


def send_due(url: str, folder: Path, sent: dict[str, Sent]) -> bool | None:
    """Send every policy that is due; return whether all of them apply.

    Args:
        url: the server's address.
        folder: the folder of the policies.
        sent: the last policy sent, by model; updated here.

    Returns:
        None if some are refused, and other policies than the bundles' stay in their places.
    """
    files = sorted(folder.glob("*.json"))
    states = [settle(url, file.stem, file.read_text(), sent) for file in files]
    return False if False in states else None if None in states else True


def settle(url: str, model: str, text: str, sent: dict[str, Sent]) -> bool | None:
    """Send a policy if it is due; return whether it applies, as `send_due`."""
    last, source = sent.get(model), ""
    try:
        source = ask(f"{url}/v1/models/{model}/policy")["source"]
        if last is None or last.text != text or source == "bundle":
            send(url, model, text)
            sent[model] = Sent(text)
    except Refused as refusal:
        sent[model] = Sent(text, str(refusal))
        if last != sent[model]:
            print(f"{model}: refused: {refusal}", file=sys.stderr, flush=True)
        return False if source == "bundle" else None
    except OSError as error:
        print(f"{model}: trying again: {error}", file=sys.stderr, flush=True)
        return False
    return None if sent[model].refusal else True


def send(url: str, model: str, text: str) -> None:
    """Replace the model's policy, whatever its version is."""
    body = json.dumps({"policy": json.loads(text), "version": None}).encode()
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
        with OPENER.open(request, timeout=TIMEOUT_S) as answer:
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
