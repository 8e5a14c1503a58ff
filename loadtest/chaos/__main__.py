"""What clients see while parts of a Ray Serve deployment die or change.

Locust asks two replicas on this machine, in an open loop, while policies change, a replica or the
controller is killed, and at last the server is told to end; then two behind Ray Serve's proxy, as
on a cluster, while a new configuration or new code is deployed and the proxy is killed. Every
failed request is reported, with and without a second try.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from loadtest.chaos.configs import write_config
from loadtest.chaos.explanations import Event
from loadtest.chaos.findings import findings_text, judge
from loadtest.chaos.scenario import Pace, Scene
from loadtest.chaos.scenarios import (
    Scenario,
    change_thresholds,
    change_user_config,
    deploy_new_code,
    kill_controller,
    kill_proxy,
    kill_replica,
    terminate,
)
from loadtest.chaos.server_processes import Family, NotSeen
from loadtest.http.client import ApiError
from loadtest.http.console import complain, started
from loadtest.http.interruption import interrupt_on_signals
from loadtest.http.server_process import HOST, ServerFailed, ServerProcess, free_port, serve_bundle
from loadtest.load.load_process import TrafficFailed

SERVED: dict[Event, Scenario] = {
    "thresholds": change_thresholds,
    "replica killed": kill_replica,
    "controller killed": kill_controller,
    "SIGTERM": terminate,  # the last one
}
# Ray Serve notices a dead proxy after three health checks, ten seconds apart.
SLOW_S: dict[Event, float] = {"proxy killed": 20.0}
DEPLOYED: dict[Event, Callable[[Scene, Path, Path], None]] = {
    "user_config": change_user_config,
    "new code": deploy_new_code,
    # `offramp serve` has none.
    "proxy killed": lambda scene, config, bundle: kill_proxy(scene),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios; 0 only if nothing failed without an explanation."""
    options = _options(arguments)
    console = Console()
    interrupt_on_signals()
    scenes: list[Scene] = []
    try:
        _run_all(options, console, scenes)
    except (ServerFailed, LeftBehind) as error:
        complain(console, f"the chaos test failed: {error}")
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    text = findings_text(scenes)
    (options.out / "chaos.md").write_text(text)
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 1 if any(judge(scene) for scene in scenes) else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.chaos", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rate", type=float, default=25.0, help="requests per second (25)")
    parser.add_argument("--seconds", type=float, default=25.0, help="of each scenario (25)")
    parser.add_argument("--only", default="", help="only scenarios with this in their name")
    parser.add_argument("--out", type=Path, default=Path("build/chaos"), help="(build/chaos)")
    return parser.parse_args(arguments)


class LeftBehind(Exception):
    """Processes of a server outlived it; they were ended."""


def _run_all(options: argparse.Namespace, console: Console, scenes: list[Scene]) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    served = {event: play for event, play in SERVED.items() if options.only in event}
    if served:
        server = serve_bundle(options.bundle, "--replicas", "2")
        with _family(server, console) as family:
            _play_all(served, options, (server, family, console), scenes)
    config = options.out / "serve.json"
    deployed = {
        event: _deploying(play, config, options.bundle)
        for event, play in DEPLOYED.items()
        if options.only in event
    }
    if deployed:
        write_config(config, options.bundle, {})
        server = _host(config)
        with _family(server, console) as family:
            _play_all(deployed, options, (server, family, console), scenes)


def _deploying(play: Callable[[Scene, Path, Path], None], config: Path, bundle: Path) -> Scenario:
    return lambda scene: play(scene, config, bundle)


def _play_all(
    scenarios: dict[Event, Scenario],
    options: argparse.Namespace,
    stage: tuple[ServerProcess, Family, Console],
    scenes: list[Scene],
) -> None:
    server, family, console = stage
    pace = Pace(options.rate, options.seconds)
    for event, play in scenarios.items():
        slow = pace._replace(seconds=pace.seconds + SLOW_S.get(event, 0.0))
        scene = Scene(event, server.url, family, slow, options.out)
        scenes.append(scene)
        try:
            play(scene)
        except (ApiError, NotSeen, TrafficFailed) as error:
            scene.problems.append(str(error))
        _tell(scene, console)


def _tell(scene: Scene, console: Console) -> None:
    found: Sequence[str] = scene.notes
    if scene.report:
        failed = scene.report["first_tries_failed"], scene.report["total"]["failures"]
        found = [f"{failed[0]} failed, {failed[1]} for good", *found]
    console.print(f"{scene.event}: {'; '.join(found)}", highlight=False)
    for problem in judge(scene):
        complain(console, f"  {problem}")


@contextmanager
def _family(server: ServerProcess, console: Console) -> Iterator[Family]:
    """Run a server for a block and see that none of its processes outlives it.

    Raises:
        LeftBehind: one did.
    """
    family = None
    try:
        with started(server, console):
            assert server.pid is not None
            family = Family(server.pid)
            family.look()
            yield family
            family.look()
    finally:
        left = family.left() if family else []
        for process in left:
            process.kill()
    if left:
        raise LeftBehind(f"{len(left)} processes of the server outlived it and were killed")


def _host(config: Path) -> ServerProcess:
    port = free_port()
    command = [sys.executable, "-m", "loadtest.chaos.host", str(config), "--port", str(port)]
    return ServerProcess(command, f"http://{HOST}:{port}")


if __name__ == "__main__":
    sys.exit(main())
