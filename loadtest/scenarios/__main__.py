"""What clients see while parts of a server die or change, roll out, or get too much to do.

Locust loads a server on this machine in an open loop, and every failed request is reported, with
and without a second try. Two replicas on Ray Serve: policies change, a replica or the controller is
killed or stopped (SIGSTOP), at last the server gets SIGTERM. Two replicas behind Ray Serve's proxy,
as on a cluster: a new configuration or new code is deployed, the proxy is killed. Two replicas
whose cluster loses its head (GCS). One server without Ray: a bad and a good candidate are rolled
out, and requests come at up to twice its capacity.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rich.console import Console

from loadtest.benchmarks.cores import on, share_cores
from loadtest.http.client import ApiError
from loadtest.http.console import print_error, print_text, run_command, started
from loadtest.http.server_process import ServerFailed, ServerProcess, on_free_port, serve_bundle
from loadtest.scenarios import broken_parts
from loadtest.scenarios.findings import findings_text, judge
from loadtest.scenarios.host import write_config
from loadtest.scenarios.rollouts import bad_candidate, good_candidate
from loadtest.scenarios.scenario import LoadFailed, NotSeen, Scenario
from loadtest.scenarios.too_much_load import overload

Play: TypeAlias = Callable[[Scenario], None]

_HOST = (sys.executable, "-m", "loadtest.scenarios.host")
# Ray Serve notices a dead proxy, or a hung replica, after three health checks. A step of a rollout
# takes 120 answers of the candidate.
_EXTRA_S = {
    "proxy killed": 20.0,
    "replica stopped": 10.0,
    "bad candidate": 155.0,
    "good candidate": 255.0,
    "overload": -19.0,  # of each load
}
_ROLLOUT_RATE = 15.0  # audits run while no text waits, so the load must leave them some time


class Stage(NamedTuple):
    """A server, and what happens to it, one scenario after the other."""

    server: ServerProcess
    plays: Mapping[str, Play]
    pinned: bool = False  # whether server and load get cores of their own


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios; 0 only if every promise was kept and every failure has an explanation."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.scenarios", description=__doc__)
    parser.add_argument("bundle", type=Path, help="rollouts and overload need certificates")
    parser.add_argument("--rate", type=float, default=25.0, help="requests per second (25)")
    parser.add_argument("--seconds", type=float, default=25.0, help="of each scenario (25)")
    parser.add_argument("--only", default="", help="only scenarios with this in their name")
    parser.add_argument("--texts", metavar="FILE", help="as for python -m loadtest.load")
    parser.add_argument("--column", metavar="NAME", help="the column of the text")
    parser.add_argument("--out", type=Path, default=Path("build/chaos"), help="(build/chaos)")
    options, console = parser.parse_args(arguments), Console()
    return run_command("test", console, partial(_run, options, console))


def _run(options: argparse.Namespace, console: Console) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    found, all_served = list[Scenario](), True
    for stage in _stages(options.bundle, options.out / "serve.json"):
        plays = {name: play for name, play in stage.plays.items() if options.only in name}
        if not plays:
            continue
        try:
            for scenario in _played(stage._replace(plays=plays), options, console):
                found.append(scenario)
        except ServerFailed as error:  # the other servers are tried
            print_error(console, str(error))
            all_served = False
    text = findings_text(found)
    (options.out / "scenarios.md").write_text(text)
    print_text(console, text)
    return 0 if found and all_served and not any(map(judge, found)) else 1


def _stages(bundle: Path, config: Path) -> Iterator[Stage]:
    replicas = partial(serve_bundle, bundle, "--replicas", "2")
    served: dict[str, Play] = {
        "thresholds": broken_parts.change_thresholds,
        "replica killed": broken_parts.kill_replica,
        "replica stopped": broken_parts.stop_replica,
        "controller killed": broken_parts.kill_controller,
        "controller stopped": broken_parts.stop_controller,
        "SIGTERM": broken_parts.terminate,  # the last one
    }
    yield Stage(replicas(), served)
    write_config(config, bundle, {})
    deployed: dict[str, Play] = {
        "user_config": partial(broken_parts.change_user_config, config=config, bundle=bundle),
        "new code": partial(broken_parts.deploy_new_code, config=config, bundle=bundle),
        "proxy killed": broken_parts.kill_proxy,  # `offramp serve` has no proxy
    }
    yield Stage(on_free_port(*_HOST, str(config), "--port"), deployed)
    yield Stage(replicas(), {"head killed": broken_parts.kill_head})
    alone: dict[str, Play] = {
        "bad candidate": bad_candidate,
        "good candidate": good_candidate,
        "overload": overload,
    }
    yield Stage(serve_bundle(bundle, "--standalone"), alone, pinned=True)


def _played(stage: Stage, options: argparse.Namespace, console: Console) -> Iterator[Scenario]:
    """Play the scenarios of one server."""
    given = {"--texts": options.texts, "--column": options.column}
    texts = tuple(word for pair in given.items() if pair[1] for word in pair)
    cores = share_cores(1)
    with ExitStack() as stack:
        if stage.pinned:
            with on(cores.servers):
                stack.enter_context(started(stage.server, console))
            stack.enter_context(on(cores.load))
        else:
            stack.enter_context(started(stage.server, console))
        for event, play in stage.plays.items():
            rate = _ROLLOUT_RATE if stage.pinned else options.rate
            seconds = max(1.0, options.seconds + _EXTRA_S.get(event, 0.0))
            scenario = Scenario(event, stage.server, rate, seconds, options.out, texts=texts)
            try:
                play(scenario)
            except (ApiError, NotSeen, LoadFailed) as error:
                scenario.problems.append(str(error))
            _print(scenario, console)
            yield scenario


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
