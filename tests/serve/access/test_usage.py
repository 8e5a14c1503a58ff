"""What keys and clients may take; the clock stands still unless a test moves it."""

import contextlib
from typing import Any

import pytest

from serve.access.gate import Client
from serve.access.keys import Key
from serve.access.usage import Usage
from serve.errors import RateLimited, TextTooLong

MIB = 2**20


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time, which passes only if a test changes it."""
    now_s = [1000.0]
    monkeypatch.setattr("serve.access.usage.time.monotonic", lambda: now_s[0])
    return now_s


class Asking:
    """A holder of a key, with a new `Client` for each request."""

    def __init__(self, name: str = "web", usage: Usage | None = None, **limits: Any) -> None:
        fields = {"name": name, "sha256": "0" * 64, "scopes": ["classify"], "limits": limits}
        self._key, self._usage = Key.model_validate(fields), usage or Usage()

    @property
    def client(self) -> Client:
        return Client(f"key:{self._key.name}", self._key, self._usage)

    def ask(self, num_rows: int = 1, max_chars: int = 1) -> None:
        client = self.client
        with client.in_flight():
            client.take_texts(num_rows, max_chars)

    def passed(self, clock: list[float], for_s: float, num_rows: int) -> int:
        """Return the texts that pass of a hundred requests a second."""
        rows, ends_s = 0, clock[0] + for_s
        while clock[0] < ends_s:
            with contextlib.suppress(RateLimited):
                self.ask(num_rows)
                rows += num_rows
            clock[0] += 0.01
        return rows


@pytest.mark.parametrize("num_rows", [1, 7, 50, 256])
def test_texts_pass_at_the_rate_of_the_key_after_a_burst_of_a_second(
    clock: list[float], num_rows: int
) -> None:
    asking = Asking(rows_per_s=50)
    for for_s in (0.85, 10, 10):  # not from one window to the next one either
        assert asking.passed(clock, for_s, num_rows) <= 50 * for_s + 50 + num_rows
    assert asking.passed(clock, 100, num_rows) >= 50 * 100 - num_rows


def test_retry_after_is_when_the_next_request_passes(clock: list[float]) -> None:
    usage = Usage()
    asking = Asking(usage=usage, rows_per_s=3)
    asking.ask(num_rows=30)
    for _ in range(100):  # a refused request takes nothing
        with pytest.raises(RateLimited) as raised:
            asking.ask(num_rows=2)
    assert (raised.value.status, raised.value.retry_after_s) == (429, 9)
    Asking("other", usage, rows_per_s=3).ask(num_rows=30)
    clock[0] += 8.9
    with pytest.raises(RateLimited):
        asking.ask()
    clock[0] += 0.2
    asking.ask()


def test_replicas_share_the_limits(clock: list[float]) -> None:
    asking = Asking(usage=Usage(num_replicas=lambda: 2), rows_per_s=4, in_flight=2)
    with asking.client.in_flight(), pytest.raises(RateLimited):
        asking.ask()
    asking.ask(num_rows=20)
    with pytest.raises(RateLimited) as raised:
        asking.ask()
    assert raised.value.retry_after_s == (20 - 2) / 2


def test_a_request_that_is_under_way_is_not_refused_for_what_it_has_taken(
    clock: list[float],
) -> None:
    asking = Asking(rows_per_s=50, tokens_per_s=100)
    client = asking.client
    client.check_body(2 * MIB)
    client.take_body(2 * MIB)
    client.take_texts(300, 1)
    client.take("texts", 350)
    client.take("tokens", 40_000)
    with pytest.raises(RateLimited) as raised:
        asking.client.check_body(0)
    assert raised.value.retry_after_s == (350 - 50) / 50  # each text once, and no body beside it


@pytest.mark.parametrize("num_bytes", [0, 1, 2 * MIB])
def test_bodies_are_counted_before_it_is_known_what_is_in_them(
    clock: list[float], num_bytes: int
) -> None:
    """A body takes a text for each 8 KiB, and one at least, whatever becomes of it."""
    asking, taken = Asking(rows_per_s=50), 0
    with contextlib.suppress(RateLimited):
        while taken <= 50:
            asking.client.check_body(num_bytes)
            taken += max(1, num_bytes // 8192)
    assert taken == (256 if num_bytes > 1 else 50)


def test_clients_whose_bodies_are_refused_again_and_again_wait(clock: list[float]) -> None:
    usage = Usage()
    good, bad = Client("1.2.3.4", usage=usage), Client("5.6.7.8", usage=usage)
    for _ in range(8):
        bad.check_body(2 * MIB)
        bad.refuse(422, 2 * MIB)
        good.check_body(2 * MIB)
        good.refuse(200, 2 * MIB)
        good.refuse(429, 2 * MIB)
    good.check_body(2 * MIB)
    with pytest.raises(RateLimited):
        bad.check_body(0)
    clock[0] += 1
    bad.check_body(0)


def test_tokens_made_in_vain_are_taken_and_refused(clock: list[float]) -> None:
    asking = Asking(tokens_per_s=100)
    client = asking.client
    client.take_unqueued(2**20)
    client.refuse(422, 1000)
    with pytest.raises(RateLimited):
        Client(client.identity, usage=client.usage).check_body(0)
    with pytest.raises(RateLimited):
        asking.client.take("tokens", 1)


def test_requests_in_flight_are_bounded_and_counted_out_after_an_error() -> None:
    usage = Usage()
    asking = Asking(usage=usage, in_flight=2)
    with (
        pytest.raises(ZeroDivisionError),
        asking.client.in_flight(),
        asking.client.in_flight(),
    ):
        with pytest.raises(RateLimited):
            asking.ask()
        Asking("other", usage, in_flight=1).ask()
        raise ZeroDivisionError
    with asking.client.in_flight():
        asking.ask()


def test_long_text_is_refused() -> None:
    with pytest.raises(TextTooLong):
        Asking(max_text_chars=10).ask(max_chars=11)
    Asking(max_text_chars=10).ask(max_chars=10)
