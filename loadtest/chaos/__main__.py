"""What clients see while parts of a Ray Serve deployment die or change.

Locust loads two replicas on this machine in an open loop. Meanwhile policies change, a replica or
the controller is killed or stopped (SIGSTOP), and at last the server gets SIGTERM. Then it loads
two replicas behind Ray Serve's proxy, as on a cluster, while a new configuration or new code is
deployed and the proxy is killed, and two replicas whose cluster loses its head (GCS). Every failed
request is reported, with and without a second try.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from rich.console import Console

from loadtest.chaos.configs import write_config
from loadtest.chaos.explanations import Event
from loadtest.chaos.findings import findings_text, judge
from loadtest.chaos.scenario import LoadFailed, NotSeen, Scenario
from loadtest.chaos.scenarios import (
    change_thresholds,
    change_user_config,
    deploy_new_code,
    kill_controller,
    kill_head,
    kill_proxy,
    kill_replica,
    stop_controller,
    stop_replica,
    terminate,
)
from loadtest.http.client import ApiError
from loadtest.http.console import print_error, print_text, run_command, started
from loadtest.http.server_process import ServerProcess, on_free_port, serve_bundle

Play = Callable[[Scenario], None]

_HOST = (sys.executable, "-m", "loadtest.chaos.host")

SERVED: dict[Event, Play] = {
    "thresholds": change_thresholds,
    "replica killed": kill_replica,
    "replica stopped": stop_replica,
    "controller killed": kill_controller,
    "controller stopped": stop_controller,
    "SIGTERM": terminate,  # the last one
}
# On a server of its own.
LAST: dict[Event, Play] = {"head killed": kill_head}
# Ray Serve notices a dead proxy, or a hung replica, after three health checks.
EXTRA_S: dict[Event, float] = {"proxy killed": 20.0, "replica stopped": 10.0}


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios; 0 only if every failure has an explanation."""
    options, console = _options(arguments), Console()
    return run_command("chaos test", console, partial(_run_all, options, console))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.chaos", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rate", type=float, default=25.0, help="requests per second (25)")
    parser.add_argument("--seconds", type=float, default=25.0, help="of each scenario (25)")
    parser.add_argument("--only", default="", help="only scenarios with this in their name")
    parser.add_argument("--out", type=Path, default=Path("build/chaos"), help="(build/chaos)")
    return parser.parse_args(arguments)


def _run_all(options: argparse.Namespace, console: Console) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    config, bundle = options.out / "serve.json", options.bundle
    deployed: dict[Event, Play] = {
        "user_config": lambda scenario: change_user_config(scenario, config, bundle),
        "new code": lambda scenario: deploy_new_code(scenario, config, bundle),
        "proxy killed": kill_proxy,  # `offramp serve` has no proxy
    }
    write_config(config, bundle, {})
    found = _play_all(SERVED, serve_bundle(bundle, "--replicas", "2"), options, console)
    found += _play_all(deployed, on_free_port(*_HOST, str(config), "--port"), options, console)
    found += _play_all(LAST, serve_bundle(bundle, "--replicas", "2"), options, console)
    text = findings_text(found)
    (options.out / "chaos.md").write_text(text)
    print_text(console, text)
    return 1 if any(judge(scenario) for scenario in found) else 0


def _play_all(
    plays: Mapping[Event, Play],
    server: ServerProcess,
    options: argparse.Namespace,
    console: Console,
) -> list[Scenario]:
    """Play the chosen scenarios on one server."""
    found: list[Scenario] = []
    chosen = {event: play for event, play in plays.items() if options.only in event}
    if not chosen:
        return found
    with started(server, console):
        for event, play in chosen.items():
            seconds = options.seconds + EXTRA_S.get(event, 0.0)
            load = options.rate, seconds, options.out
            scenario = Scenario(event, server, *load)
            found.append(scenario)
            try:
                play(scenario)
            except (ApiError, NotSeen, LoadFailed) as error:
                scenario.problems.append(str(error))
            _print(scenario, console)
    return found


def _print(scenario: Scenario, console: Console) -> None:
    notes = scenario.notes
    if scenario.report:
        failed = scenario.report["first_tries_failed"], scenario.report["total"]["failures"]
        notes = [f"{failed[0]} failed, {failed[1]} for good", *notes]
    print_text(console, f"{scenario.event}: {'; '.join(notes)}")
    for problem in judge(scenario):
        print_error(console, f"  {problem}")


if __name__ == "__main__":
    sys.exit(main())
