"""Whether the load of Locust's own command was as large as asked for."""

from typing import Any

import gevent
from locust.runners import MasterRunner, WorkerRunner

_LOOK_EVERY_S = 1.0


class WorkerWatch:
    """Looks at Locust's workers and users, and says at the end if there were too few.

    Locust itself goes on with the workers that are left, and ends with status 0.
    """

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._most_workers = 0

    @classmethod
    def start(cls, environment: Any, **_: object) -> None:
        """Begin to watch; a listener for Locust's event `init`."""
        runner = environment.runner
        if runner is None or isinstance(runner, WorkerRunner):
            return
        watch = cls(environment)
        if isinstance(runner, MasterRunner):
            gevent.spawn(watch._count_workers, runner)
        environment.events.test_stopping.add_listener(watch.report)

    def report(self, **_: object) -> None:
        """Print what was missing, if anything was, and make Locust's status 1."""
        found = self._shortfalls()
        if found:
            print(f"The load fell short: {'; '.join(found)}.", flush=True)
            self._environment.process_exit_code = 1

    def _shortfalls(self) -> list[str]:
        runner, found = self._environment.runner, []
        if isinstance(runner, MasterRunner):
            lost = self._most_workers - runner.worker_count
            if lost > 0:
                found.append(f"{lost} of {self._most_workers} workers were lost")
        if runner.user_count < runner.target_user_count:
            found.append(f"{runner.user_count} of {runner.target_user_count} users ran at the end")
        busy = getattr(runner, "worker_cpu_warning_emitted", False)
        if busy or runner.cpu_warning_emitted:
            found.append("a load generator was at the limit of its processor")
        return found

    def _count_workers(self, runner: MasterRunner) -> None:
        while True:
            self._most_workers = max(self._most_workers, runner.worker_count)
            gevent.sleep(_LOOK_EVERY_S)
