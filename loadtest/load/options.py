"""Options that `python -m loadtest.load` and Locust's own command share."""

import json
import math
import random
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from typing import NamedTuple

from loadtest.http.client import Json
from loadtest.load.arrivals import ARRIVALS


class Kind(NamedTuple):
    """One kind of request."""

    name: str  # in the report
    wish: Callable[[], Json | None]  # returns the rule or target; None leaves it to the policy
    several: bool = False  # texts in a request


def _target() -> Json:
    return {"target": {"max_disagreement": random.choice((0.01, 0.02, 0.03, 0.05))}}


def _threshold() -> Json:
    return {"rule": "entropy", "threshold": round(random.uniform(0.02, 0.6), 2)}


def _patience() -> Json:
    return {"rule": "patience", "patience": random.choice((1, 2))}


KINDS: Mapping[str, Kind] = {
    "default": Kind("default policy", lambda: None),
    "target": Kind("target", _target),
    "threshold": Kind("own threshold", _threshold),
    "patience": Kind("patience", _patience),
    "batch": Kind("batch", lambda: None, several=True),
}
DEFAULT_WEIGHTS = {"default": 3, "target": 2, "threshold": 1, "patience": 1, "batch": 1}


def add_options(parser: ArgumentParser) -> None:
    """Add all shared options."""
    add = parser.add_argument_group("requests").add_argument
    add("--texts", metavar="FILE", help=".txt with a text per line, or a data file with columns")
    add("--column", metavar="NAME[,NAME]", help="the column of the text, or the two of a pair")
    add(
        "--weights",
        type=parse_weights,
        default=DEFAULT_WEIGHTS,
        metavar="KIND=N,...",
        help="how often each kind of request is sent "
        f"({as_words(DEFAULT_WEIGHTS)}; kinds left out are not sent)",
    )
    add(
        "--exit",
        type=json.loads,
        metavar="JSON",
        help='exit of all requests, such as {"target": {"max_disagreement": 0.01}}',
    )
    add("--batch-texts", type=int, default=8, help="texts of a batch (8)")
    add("--timeout", type=positive, default=30.0, help="seconds to wait for an answer (30)")
    add("--retries", type=int, default=0, help="how often a failed request is sent again (0)")
    add = parser.add_argument_group("arrivals").add_argument
    add(
        "--arrivals",
        choices=ARRIVALS,
        default="closed",
        help="closed: each user sends when the last answer has come; constant, poisson: "
        "requests are due at --rate, independent of the answers (closed)",
    )
    add(
        "--rate",
        type=positive,
        metavar="PER_SECOND",
        help="requests per second of all users together; in a closed loop users pause for it",
    )
    add(
        "--most-outstanding",
        type=int,
        default=512,
        metavar="N",
        help="open loop: a request that is due while N are waiting is not sent and counts as "
        "failed (512 per process)",
    )
    add = parser.add_argument_group("load over time").add_argument
    add(
        "--shape",
        choices=("steady", "ramp", "spike", "soak"),
        default="steady",
        help="steady; ramp: steps up until the server is saturated; spike: ten times the load "
        "for a while; soak: steady, for ten minutes unless --seconds says otherwise (steady)",
    )
    add("--step-seconds", type=positive, default=8.0, help="length of a step (8)")
    add(
        "--scale-up-seconds",
        type=positive,
        metavar="S",
        help="ramp: how long the server takes to add a replica; a step that would end the ramp "
        "is held so long and measured again (not at all)",
    )
    add("--growth", type=positive, default=2.0, help="load of a step, over the last (2)")
    add("--most-users", type=whole_number, default=256, help="where a ramp ends (256)")
    add("--limit-p99-ms", type=positive, default=2000.0, help="a ramp ends above it (2000)")
    add("--limit-failures", type=float, default=0.01, help="a ramp ends above this share (0.01)")
    add("--spike-factor", type=positive, default=10.0, help="load in the spike (10)")


def set_rate_per_user(options: Namespace) -> None:
    """Set each user's share of the rate, by the number of users at the start.

    The share is an option because Locust's master sends options to its workers. A shape that adds
    users adds load.

    Raises:
        ValueError: an open loop without a rate.
    """
    if options.arrivals != "closed" and not options.rate:
        raise ValueError(f"--arrivals {options.arrivals} needs a --rate")
    users = max(1, options.num_users or 1)
    options.rate_per_user = options.rate / users if options.rate else None


def whole_number(word: str) -> int:
    """Read a number from 1 on."""
    try:
        value = int(word)
    except ValueError:
        value = 0
    if value < 1:
        raise ArgumentTypeError(f"{word} is no whole number from 1 on")
    return value


def positive(word: str) -> float:
    """Read a number above 0."""
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"{word} is no number above 0")
    return value


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
