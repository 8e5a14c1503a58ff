"""For Locust's own command: the users, our options, and the shape that `--shape` names.

`locust -f loadtest/load/locustfile.py --host http://127.0.0.1:8000`, web page on port 8089.
`make loadtest` needs none of this file.
"""

from argparse import ArgumentParser
from typing import Any

from locust import events
from locust.runners import WorkerRunner

from loadtest.load.options import add_arrival_options, add_asking_options, add_shape_options
from loadtest.load.shapes import ChosenShape
from loadtest.load.users import BatchUser, DefaultUser, PatienceUser, ThresholdUser, weighted

__all__ = ["BatchUser", "ChosenShape", "DefaultUser", "PatienceUser", "ThresholdUser"]


def add_options(parser: ArgumentParser) -> None:
    """Add our options to Locust's."""
    add_asking_options(parser)
    add_arrival_options(parser)
    add_shape_options(parser)


def choose_users(environment: Any, **_: object) -> None:
    """Let the users have the weights of the command line; a worker has its master's."""
    if not isinstance(environment.runner, WorkerRunner):
        used = weighted(environment.parsed_options.weights)
        environment.user_classes = [user for user in environment.user_classes if user in used]


events.init_command_line_parser.add_listener(add_options)
events.init.add_listener(choose_users)
