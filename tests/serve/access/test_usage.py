import contextlib
from typing import Any

import pytest

from serve.access.gate import Client
from serve.access.keys import Key, KeyLimits
from serve.access.usage import Usage
from serve.errors import RateLimited, TextTooLong


def key(name: str = "web", **limits: Any) -> Key:
    return Key(name=name, sha256="0" * 64, scopes=("classify",), limits=KeyLimits(**limits))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time, which passes only if a test changes it."""
    now_s = [1000.0]
    monkeypatch.setattr("serve.access.usage.time.monotonic", lambda: now_s[0])
    return now_s


def ask(usage: Usage, key: Key, num_rows: int = 1, max_chars: int = 1) -> None:
    client = Client(f"key:{key.name}", key, usage)
    with usage.in_flight(key):
        client.take_texts(num_rows, max_chars)


def passed(usage: Usage, key: Key, clock: list[float], for_s: float, num_rows: int = 1) -> int:
    """Return the texts that pass of a client that asks a hundred times a second."""
    rows, ends_s = 0, clock[0] + for_s
    while clock[0] < ends_s:
        with contextlib.suppress(RateLimited):
            ask(usage, key, num_rows)
            rows += num_rows
        clock[0] += 0.01
    return rows


@pytest.mark.parametrize("num_rows", [1, 7, 50, 256])
def test_texts_pass_at_the_rate_of_the_key_after_a_burst_of_a_second(
    clock: list[float], num_rows: int
) -> None:
    usage, limited = Usage(), key(rows_per_s=50)
    for for_s in (0.85, 10, 10):  # not from one window to the next one either
        assert passed(usage, limited, clock, for_s, num_rows) <= 50 * for_s + 50 + num_rows
    assert passed(usage, limited, clock, 100, num_rows) >= 50 * 100 - num_rows


def test_retry_after_is_when_the_next_request_passes(clock: list[float]) -> None:
    usage, limited = Usage(), key(rows_per_s=3)
    ask(usage, limited, num_rows=30)
    with pytest.raises(RateLimited, match="may send 3 texts a second") as raised:
        ask(usage, limited)
    assert (raised.value.status, raised.value.retry_after_s) == (429, 9)
    ask(usage, key("other", rows_per_s=3), num_rows=30)
    clock[0] += 8.9
    with pytest.raises(RateLimited):
        ask(usage, limited)
    clock[0] += 0.2
    ask(usage, limited)


def test_tokens_beyond_the_rate_are_refused(clock: list[float]) -> None:
    usage, limited = Usage(), key(tokens_per_s=100)
    usage.take(limited, "tokens", 1000)
    with pytest.raises(RateLimited, match="100 tokens a second"):
        usage.take(limited, "tokens", 1)
    usage.take(key("other"), "tokens", 10**9)


def test_refused_request_takes_nothing(clock: list[float]) -> None:
    usage, limited = Usage(), key(rows_per_s=1)
    ask(usage, limited, num_rows=9)
    for _ in range(100):
        with pytest.raises(RateLimited):
            ask(usage, limited, num_rows=2)
    clock[0] += 9
    ask(usage, limited, num_rows=1)


def test_a_request_that_is_under_way_is_not_refused_for_what_it_has_taken(
    clock: list[float],
) -> None:
    client = Client("key:web", key(rows_per_s=50, tokens_per_s=100), Usage())
    client.check_body(2 * 1024 * 1024)
    client.take_body(2 * 1024 * 1024)
    client.take_texts(300, 1)
    client.take_rows(350)
    client.take_tokens(40_000)
    with pytest.raises(RateLimited) as raised:
        Client(client.identity, client.key, client.usage).check_body(0)
    assert raised.value.retry_after_s == (350 - 50) / 50  # each text once, and no body beside it


@pytest.mark.parametrize("num_bytes", [0, 1, 2 * 1024 * 1024])
def test_bodies_are_counted_before_it_is_known_what_is_in_them(
    clock: list[float], num_bytes: int
) -> None:
    """Whatever a body ends in, it has taken a text for each 8 KiB, and one at least."""
    usage, limited = Usage(), key(rows_per_s=50)
    taken = 0
    with contextlib.suppress(RateLimited):
        while taken <= 50:
            Client("key:web", limited, usage).check_body(num_bytes)
            taken += max(1, num_bytes // 8192)
    assert taken == (256 if num_bytes > 1 else 50)


def test_clients_whose_bodies_are_refused_again_and_again_wait(clock: list[float]) -> None:
    usage, mib = Usage(), 2**20
    good, bad = Client("1.2.3.4", usage=usage), Client("5.6.7.8", usage=usage)
    for _ in range(8):
        bad.check_body(2 * mib)
        bad.refuse(422, 2 * mib)
        good.check_body(2 * mib)
        good.refuse(200, 2 * mib)
        good.refuse(429, 2 * mib)
    good.check_body(2 * mib)
    with pytest.raises(RateLimited, match="1048576 bytes a second of your requests were refused"):
        bad.check_body(0)
    clock[0] += 1
    bad.check_body(0)


def test_tokens_made_in_vain_are_taken_and_refused(clock: list[float]) -> None:
    usage, limited = Usage(), key(tokens_per_s=100)
    client = Client("key:web", limited, usage)
    client.take_unqueued(2**20)
    client.refuse(422, 1000)
    with pytest.raises(RateLimited, match="were refused"):
        usage.check_refused("key:web")
    with pytest.raises(RateLimited, match="100 tokens a second"):
        usage.take(limited, "tokens", 1)


def test_requests_in_flight_are_bounded_and_counted_out_after_an_error() -> None:
    usage, limited = Usage(), key(in_flight=2)
    one, two = usage.in_flight(limited), usage.in_flight(limited)
    with pytest.raises(ZeroDivisionError), one, two:
        with pytest.raises(RateLimited, match="has 2 requests in flight; it may have 2"):
            ask(usage, limited)
        ask(usage, key("other", in_flight=1))
        raise ZeroDivisionError
    with usage.in_flight(limited):
        ask(usage, limited)


def test_long_text_is_refused() -> None:
    with pytest.raises(TextTooLong, match="has 11 characters; the key web may send texts of 10"):
        ask(Usage(), key(max_text_chars=10), max_chars=11)


def test_replicas_share_the_limits() -> None:
    usage, limited = Usage(num_replicas=lambda: 2), key(rows_per_s=4, in_flight=2)
    ask(usage, limited, num_rows=20)
    with pytest.raises(RateLimited):
        ask(usage, limited)
    usage = Usage(num_replicas=lambda: 2)
    with usage.in_flight(limited), pytest.raises(RateLimited, match="may have 1 here"):
        ask(usage, limited)
