"""How often each kind of request is sent: `default=3,target=2,threshold=1,patience=1,batch=1`."""

from argparse import ArgumentTypeError
from collections.abc import Mapping

DEFAULT_WEIGHTS = {"default": 3, "target": 2, "threshold": 1, "patience": 1, "batch": 1}


def as_words(weights: Mapping[str, int]) -> str:
    """Return weights as `--weights` takes them."""
    return ",".join(f"{kind}={weight}" for kind, weight in weights.items())


def parse_weights(words: str) -> dict[str, int]:
    """Return the weight of every kind of request; kinds that are not named get 0.

    Raises:
        ArgumentTypeError: a name or a number is wrong, or all weights are 0.
    """
    weights = dict.fromkeys(DEFAULT_WEIGHTS, 0)
    for part in words.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        if name not in weights or not number.isdecimal():
            raise ArgumentTypeError(
                f"{part!r} is no weight: say for example default=4,batch=1; "
                f"the kinds of request are {', '.join(weights)}"
            )
        weights[name] = int(number)
    if not any(weights.values()):
        raise ArgumentTypeError("all weights are 0, so no request would be sent")
    return weights
