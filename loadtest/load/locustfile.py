"""The users, options and load shapes for Locust's own command.

`locust -f loadtest/load/locustfile.py --host http://127.0.0.1:8000`; the web page is on port 8089.
"""

from typing import Any

from locust import events
from locust.runners import WorkerRunner

from loadtest.load.options import add_options
from loadtest.load.shapes import ChosenShape
from loadtest.load.users import (
    BatchUser,
    DefaultUser,
    PatienceUser,
    TargetUser,
    ThresholdUser,
    weighted,
)

# Locust runs the classes that it finds in this file.
__all__ = [
    "BatchUser",
    "ChosenShape",
    "DefaultUser",
    "PatienceUser",
    "TargetUser",
    "ThresholdUser",
]


def choose_users(environment: Any, **_: object) -> None:
    """Set the users' weights from the command line; a worker gets its master's."""
    if not isinstance(environment.runner, WorkerRunner):
        used = weighted(environment.parsed_options.weights)
        environment.user_classes = [user for user in environment.user_classes if user in used]


events.init_command_line_parser.add_listener(add_options)
events.init.add_listener(choose_users)
