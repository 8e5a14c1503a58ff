from argparse import ArgumentTypeError

import pytest

from loadtest.load.options import parse_weights


def test_kinds_that_are_not_named_are_not_sent() -> None:
    expected = {"default": 4, "target": 0, "threshold": 0, "patience": 0, "batch": 1}
    assert parse_weights("default=4, batch=1") == expected


@pytest.mark.parametrize("words", ["", "default", "other=1", "default=-1", "batch=x", "default=0"])
def test_wrong_weights_are_refused(words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"say for example default=4,batch=1|weights are 0"):
        parse_weights(words)
