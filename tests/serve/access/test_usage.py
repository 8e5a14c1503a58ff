import time
from typing import Any

import pytest

from serve.access.keys import Key, KeyLimits
from serve.access.usage import WINDOW_S, Usage
from serve.errors import InvalidRequest, RateLimited, TextTooLong


def key(name: str = "web", **limits: Any) -> Key:
    return Key(name=name, sha256="0" * 64, scopes=("classify",), limits=KeyLimits(**limits))


def ask(usage: Usage, key: Key, num_rows: int = 1, max_chars: int = 1) -> None:
    with usage.in_flight(key):
        usage.texts(key, num_rows, max_chars)


def test_texts_beyond_the_rate_are_refused_until_the_window_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = time.monotonic()
    monkeypatch.setattr("serve.access.usage.time.monotonic", lambda: now_s)
    usage, limited = Usage(), key(rows_per_s=3)
    for _ in range(3):
        ask(usage, limited, num_rows=10)
    with pytest.raises(RateLimited, match="may send 3 texts a second") as raised:
        ask(usage, limited)
    assert raised.value.status == 429
    assert raised.value.retry_after_s == WINDOW_S
    ask(usage, key("other", rows_per_s=3), num_rows=30)
    now_s += WINDOW_S + 1
    ask(usage, limited, num_rows=30)


def test_tokens_beyond_the_rate_are_refused() -> None:
    usage, limited = Usage(), key(tokens_per_s=100)
    usage.tokens(limited, 1000)
    with pytest.raises(RateLimited, match="100 tokens a second"):
        usage.tokens(limited, 1)
    usage.tokens(key("other"), 10**9)


def test_refused_request_takes_nothing() -> None:
    usage, limited = Usage(), key(rows_per_s=1)
    ask(usage, limited, num_rows=9)
    with pytest.raises(RateLimited):
        ask(usage, limited, num_rows=2)
    ask(usage, limited, num_rows=1)


def test_request_that_could_never_pass_is_not_asked_to_come_back() -> None:
    with pytest.raises(InvalidRequest, match="11 texts are more than the key web may send in 10 s"):
        ask(Usage(), key(rows_per_s=1), num_rows=11)


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
