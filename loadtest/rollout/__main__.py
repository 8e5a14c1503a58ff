"""`python -m loadtest.rollout BUNDLE --texts FILE`: two rollouts under load, with pictures.

The policy runs every text to full depth. The bad candidate leaves every text at layer 1, and must
go back by itself; the good one is a certified target, and must become the policy. Locust sends
texts all the time, and none of its requests may fail.
"""

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from loadtest.http.child_process import ChildProcess
from loadtest.http.client import Client, Json
from loadtest.http.console import print_error, print_text, run_command, started
from loadtest.http.server_process import serve_bundle
from loadtest.rollout.picture import write_picture

_EVERY_S: Final = 0.5
_BOUNDS: Final = {"disagreement": 0.04, "layers": 3.0, "errors": 0.01}
_PLAN: Final[Json] = {
    "steps": [5, 25, 50, 100], "min_answers": 120, "bounds": _BOUNDS, "audit_share": 1.0,
    "on_inconclusive": "promote",
}  # fmt: skip
_CANDIDATES: Final[dict[str, tuple[Any, str]]] = {
    "bad": ({"rule": "layer", "layer": 1}, "failed"),
    "good": ({"target": {"max_disagreement": 0.01}}, "promoted"),
}


def main() -> int:
    """Run both rollouts; 0 only if each ends as it must and every request was answered."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.rollout", description=__doc__)
    parser.add_argument("bundle", type=Path, help="bundle to serve; it must be certified")
    parser.add_argument("--texts", required=True, help="as for python -m loadtest.load")
    parser.add_argument("--column", default="text_a", help="the column of the text (text_a)")
    # Audits run while no text waits, so the load must leave them some time.
    parser.add_argument("--rate", type=float, default=15, help="requests per second (15)")
    parser.add_argument("--users", type=int, default=16, help="simulated clients (16)")
    parser.add_argument("--hold-s", type=float, default=10, help="least seconds of a step (10)")
    parser.add_argument("--seconds", type=float, default=280, help="of load per rollout (280)")
    parser.add_argument("--only", choices=_CANDIDATES, help="one of the two rollouts")
    parser.add_argument("--out", type=Path, default=Path("build/rollout"), help="folder for all")
    options, console = parser.parse_args(), Console()
    return run_command("load test", console, partial(_run, options, console))


def _run(options: argparse.Namespace, console: Console) -> int:
    server = serve_bundle(options.bundle, "--standalone", "--precision", "int8")
    names = [options.only] if options.only else list(_CANDIDATES)
    with started(server, console):
        problems = [_rolled_out(Client(server.url), name, options, console) for name in names]
    for problem in filter(None, problems):
        print_error(console, f"failed: {problem}")
    return 1 if any(problems) else 0


def _rolled_out(client: Client, name: str, options: argparse.Namespace, console: Console) -> str:
    """Roll a candidate out under load, and draw it; return what went wrong, empty for nothing."""
    wish, end = _CANDIDATES[name]
    model, folder = client.models()[0]["name"], options.out / name
    first = client.policy(model)._replace(document={"default": {"rule": "never"}})
    client.replace_policy(model, first)
    candidate = {"policy": {"default": wish}, "hold_s": options.hold_s, **_PLAN}
    with _load(client.url, options, folder) as load:
        seen = _watched(client, model, candidate, options.seconds, load)
    figures, state = json.loads((folder / "report.json").read_text())["total"], seen[-1]["state"]
    (folder / "rollout.json").write_text(json.dumps(seen))
    picture = write_picture(seen, _BOUNDS["disagreement"], options.out / f"{name}.svg")
    told = f"{name}: {state}, {figures['requests']} requests, {figures['failures']} failed"
    print_text(console, f"{told}; {seen[-1].get('why')}\n{picture}")
    return "" if state == end and not figures["failures"] else f"{told}, and must be {end}"


def _load(url: str, options: argparse.Namespace, folder: Path) -> ChildProcess:
    """Return Locust's users. In a process of its own, because Locust patches the library."""
    words = ["--host", url, "--texts", options.texts, "--column", options.column]
    words += ["--users", str(options.users), "--seconds", str(options.seconds)]
    words += ["--arrivals", "poisson", "--rate", str(options.rate)]
    words += ["--weights", "default=1", "--no-metrics", "--out", str(folder)]
    return ChildProcess([sys.executable, "-m", "loadtest.load", *words])


def _watched(
    client: Client, model: str, candidate: Json, seconds: float, load: ChildProcess
) -> list[Json]:
    """Start a rollout under load and return what it has shown until the load has ended."""
    began = time.monotonic()
    seen: list[Json] = []
    while load.status(_EVERY_S) is None and time.monotonic() < began + 3 * seconds:
        passed_s = time.monotonic() - began
        if not seen and passed_s < seconds / 12:
            continue  # some load before it
        shown = client.rollout(model) if seen else client.start_rollout(model, candidate)
        seen.append({**shown, "passed_s": passed_s})
    return seen


if __name__ == "__main__":
    sys.exit(main())
