from argparse import ArgumentTypeError

import pytest

from loadtest.load.user_mix import parse_weights


def test_ways_that_are_not_named_are_not_used() -> None:
    assert parse_weights("default=4, batch=1") == {
        "default": 4,
        "threshold": 0,
        "patience": 0,
        "batch": 1,
    }


@pytest.mark.parametrize("words", ["", "default", "nobody=1", "default=-1", "batch=x"])
def test_wrong_weights_are_refused_with_an_example(words: str) -> None:
    with pytest.raises(ArgumentTypeError, match="say for example default=4,batch=1"):
        parse_weights(words)


def test_weights_that_are_all_nothing_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="nothing would be asked"):
        parse_weights("default=0")
