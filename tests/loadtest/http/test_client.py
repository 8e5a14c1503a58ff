import pytest

from loadtest.http.client import ApiError, Client, LivePolicy
from loadtest.http.server_process import HOST, free_port
from tests.loadtest.conftest import StartFake


def test_answer_names_where_and_why_the_text_left(start_fake: StartFake) -> None:
    answer = Client(start_fake().url).classify("one two", {"rule": "entropy", "threshold": 0.6})
    assert (answer.layer, answer.layers, answer.reason) == (1, 6, "confident")


def test_replaced_policy_has_the_next_version(start_fake: StartFake) -> None:
    client = Client(start_fake().url)
    live = client.policy("tiny")
    new = client.replace_policy("tiny", LivePolicy(live.version, {"default": {"rule": "never"}}))
    assert new == (live.version + 1, {"default": {"rule": "never"}})
    assert client.policy("tiny") == new


def test_refusal_carries_the_servers_message(start_fake: StartFake) -> None:
    client = Client(start_fake("refuses everything").url)
    with pytest.raises(ApiError, match="POST /v1/classify: 422 at most one text"):
        client.classify("text")


def test_reply_that_is_no_json_is_an_api_error(start_fake: StartFake) -> None:
    client = Client(start_fake("speaks nonsense").url)
    with pytest.raises(ApiError, match="no JSON"):
        client.classify("text")


def test_connection_that_ends_is_an_api_error(start_fake: StartFake) -> None:
    client = Client(start_fake("hangs up").url)
    with pytest.raises(ApiError, match="/v1/classify"):
        client.classify("text")


def test_server_that_is_not_there_is_an_api_error() -> None:
    client = Client(f"http://{HOST}:{free_port()}")
    assert not client.ready()
    with pytest.raises(ApiError, match="refused"):
        client.metrics()
