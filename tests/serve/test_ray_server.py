"""What a signal does to the process that holds the cluster; the rest is in test_ray_app.py."""

import signal
import socket

from serve.ray_server import RayServer


def test_signal_stops_the_alarm_that_ray_has_set() -> None:
    """Ray's core sets it where it hears of the signal first; it would abort the process."""
    signal.alarm(60)
    try:
        with socket.socket() as address:
            RayServer(address)._on_signal(signal.SIGTERM, None)
        left_s = signal.alarm(0)
    finally:
        signal.alarm(0)
    assert left_s == 0
