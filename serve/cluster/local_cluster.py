"""`offramp serve` on Ray Serve: a cluster on this machine, for as long as the command runs."""

import json
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Final, TypeAlias

from serve.announcer import Announcer
from serve.cluster.deployment_options import LocalReplicas
from serve.cluster.log_socket import collecting
from serve.cluster.node import end_session, session_folder
from serve.cluster.ray_process import GRACE_S, Job
from serve.config import ServerConfig, stop_signals
from serve.errors import Unavailable
from serve.http.settings import DRAIN_S
from serve.log_output import Output
from serve.runtime.cuda_provider import num_devices

# Events of `serve.cluster.ray_process` with their sentence, "ended" when it has, and "signal" with
# its name.
# A handler of a signal may run within another one: this queue allows that.
Events: TypeAlias = SimpleQueue[tuple[str, str]]

# After Ray has ended by itself: a signal that Ray's processes have got too is told in this time.
_SIGNAL_S: Final = 1.0


def serve_on_ray(
    config: ServerConfig,
    address: tuple[str, int],
    replicas: LocalReplicas,
    on_ready: Callable[[], None],
    announcer: Announcer,
    output: Output,
) -> None:
    """Serve until a signal to stop; then answer admitted requests and end every process.

    A signal that comes earlier ends the start, and a second Ctrl-C the wait for answers.

    Args:
        config: the app's config.
        address: host and port that replicas listen on, see `take_shared_port`.
        replicas: all on this machine.
        on_ready: called once every replica is ready.
        announcer: says how it goes.
        output: where the replicas' log lines go.

    Raises:
        Unavailable: Ray or the replicas do not start, or Ray has ended.
    """
    events: Events = SimpleQueue()
    for number in stop_signals():
        signal.signal(number, lambda number, _: events.put(("signal", signal.Signals(number).name)))
    num_gpus = num_devices() if replicas.gpu_share else 0
    with session_folder() as folder, collecting(lines := folder / "lines", output):
        job = Job(config, address, replicas, num_gpus, folder, lines)
        with _head(job, events) as commands:
            serving = _serve(events, on_ready, announcer)
            announcer.say("stopping: answering what is in flight ...")
            if serving:
                _stop(commands, events, announcer)


def _serve(events: Events, on_ready: Callable[[], None], announcer: Announcer) -> bool:
    """Return when a signal to stop has come; tell whether there is anything to stop."""
    serving = False
    while True:
        event, said = events.get()
        if event == "ready":
            serving = True
            on_ready()
        elif event == "note":
            announcer.say(said)
        elif event == "warn":
            announcer.warn(said)
        elif event == "failed":
            raise Unavailable(said)
        elif event == "ended":
            with suppress(Empty):
                if events.get(timeout=_SIGNAL_S)[0] == "signal":
                    announcer.warn("Ray has got the signal too: requests in flight are lost")
                    return False
            raise Unavailable("Ray's processes have ended; their logs were in Ray's folder")
        else:
            return serving


def _stop(commands: IO[bytes], events: Events, announcer: Announcer) -> None:
    """Have the replicas answer what they have accepted, for a while at most."""
    with suppress(OSError):
        commands.write(b"stop\n")
        commands.flush()
    end_s = time.monotonic() + DRAIN_S + GRACE_S
    with suppress(Empty):
        while True:
            event, said = events.get(timeout=max(0.0, end_s - time.monotonic()))
            if event == "warn":
                announcer.warn(said)
            elif event != "signal" or said == "SIGINT":
                return


@contextmanager
def _head(job: Job, events: Events) -> Iterator[IO[bytes]]:
    """Run `serve.cluster.ray_process` and all that it starts; yield what takes its commands."""
    command = [sys.executable, "-P", "-m", "serve.cluster.ray_process"]
    # In a session of its own Ctrl-C does not reach it, and its processes are found.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            Thread(target=_read, args=(process.stdout, events), daemon=True).start()
            process.stdin.write(pickle.dumps(job))
            process.stdin.flush()
            yield process.stdin
        finally:
            end_session(process.pid)


def _read(lines: IO[bytes], events: Events) -> None:
    for line in lines:
        event, said = json.loads(line)
        events.put((event, said))
    events.put(("ended", ""))
