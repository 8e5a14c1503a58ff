"""Start a fake language model, Offramp and a gateway; ask the gateway; stop all three.

    .venv/bin/python docs/examples/guardrail/run.py bundles/sst2-minilm

With `--litellm PROGRAM` the gateway is LiteLLM's proxy, else `gateway.py`.
"""

import argparse
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

HERE = Path(__file__).parent
GOOD, BAD = "The film was a delight from start to finish.", "What a dull, lifeless mess of a film."
ASK = (GOOD, BAD, " ".join([*[GOOD] * 40, *[BAD] * 40]))
START_S = 180.0


def main() -> None:
    """Run the example and print what came back."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("bundle", help="a bundle of the shipped model, by `make bundle`")
    options.add_argument("--policy", type=Path, default=HERE / "policy.json")
    options.add_argument("--litellm", help="the program `litellm` of an installed litellm[proxy]")
    chosen = options.parse_args()
    with ExitStack() as stack:
        model, offramp, gateway = (f"http://127.0.0.1:{free_port()}" for _ in range(3))
        stack.enter_context(started(script("fake_llm.py", model), model))
        serve = [Path(sys.executable).with_name("offramp"), "serve", chosen.bundle]
        serve += ["--standalone", "--port", port_of(offramp)]
        stack.enter_context(started(serve, offramp))
        name = Path(chosen.bundle).name
        policy = json.loads(chosen.policy.read_text())
        status, answer = send("PUT", f"{offramp}/v1/models/{name}/policy", policy)
        if status != 200:
            raise SystemExit(answer["error"]["message"])
        key = f"sk-{secrets.token_hex(16)}"
        if chosen.litellm:
            command = [chosen.litellm, "--config", HERE / "litellm.yaml", "--host", "127.0.0.1"]
            command += ["--port", port_of(gateway)]
        else:
            command = [*script("gateway.py", gateway), model, offramp]
        settings = {"FAKE_LLM": model, "OFFRAMP": offramp, "LITELLM_MASTER_KEY": key}
        stack.enter_context(started(command, gateway, **settings))
        for text in ASK:
            chat = {"model": "fake", "messages": [{"role": "user", "content": text}]}
            status, answer = send("POST", f"{gateway}/chat/completions", chat, key)
            said = answer["error"] if status != 200 else answer["choices"][0]["message"]
            print(f"{text[:45]} ... ({len(text)} characters)")
            print("   ", status, said.get("message", said.get("content"))[:70], flush=True)


def script(name: str, url: str) -> list[Any]:
    """Return the command of a script of this folder that listens at a URL."""
    return [sys.executable, HERE / name, port_of(url)]


@contextmanager
def started(command: list[Any], url: str, **environment: str) -> Iterator[None]:
    """Run a program until the block is left; begin once it listens."""
    process = subprocess.Popen(
        [str(part) for part in command],
        env=os.environ | environment | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_it_listens(process, int(port_of(url)))
        yield
    finally:
        process.terminate()
        process.wait()


def wait_until_it_listens(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Return once a connection can be made.

    Raises:
        SystemExit: the program has ended, or takes too long.
    """
    ends_s = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < ends_s:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{process.args!r} does not listen on port {port}")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def port_of(url: str) -> str:
    """Return the port of a URL."""
    return url.rpartition(":")[2]


def send(method: str, url: str, body: Any, key: str = "") -> tuple[int, Any]:
    """Return the status and the JSON of an answer."""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = Request(url, json.dumps(body).encode(), headers, method=method)
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


if __name__ == "__main__":
    main()
