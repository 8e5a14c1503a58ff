"""Options that `python -m loadtest.load` and Locust's own command share."""

import json
import math
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from loadtest.load.arrivals import ARRIVALS
from loadtest.load.user_mix import DEFAULT_WEIGHTS, parse_weights

SHAPES = ("steady", "ramp", "spike", "soak")


def add_asking_options(parser: ArgumentParser) -> None:
    """Add what is asked, and how."""
    asking = parser.add_argument_group("what is asked")
    asking.add_argument(
        "--texts", metavar="FILE", help="texts, one per line, or a TSV with a header"
    )
    asking.add_argument("--column", metavar="NAME", help="the TSV's column with the text")
    asking.add_argument(
        "--weights",
        type=parse_weights,
        default=DEFAULT_WEIGHTS,
        metavar="WAY=N,...",
        help="how often each way of asking is used "
        "(default=4,threshold=2,patience=1,batch=1; what is left out is not used)",
    )
    asking.add_argument(
        "--exit",
        type=json.loads,
        metavar="JSON",
        help='exit rule that all requests ask for, such as {"rule": "entropy", "threshold": 0.2}',
    )
    asking.add_argument("--batch-texts", type=int, default=8, help="texts of a batch (8)")
    asking.add_argument(
        "--timeout", type=_positive, default=30.0, help="seconds until an answer is given up (30)"
    )
    asking.add_argument(
        "--retries", type=int, default=0, help="how often a failed request is sent again (0)"
    )


def add_arrival_options(parser: ArgumentParser) -> None:
    """Add when it is asked."""
    coming = parser.add_argument_group("when it is asked")
    coming.add_argument(
        "--arrivals",
        choices=ARRIVALS,
        default="closed",
        help="closed: each user asks when the last answer is there; constant, poisson: "
        "requests come at --rate, whatever the answers do (closed)",
    )
    coming.add_argument(
        "--rate",
        type=_positive,
        metavar="PER_SECOND",
        help="requests per second of all users together; in a closed loop users pause for it",
    )
    coming.add_argument(
        "--most-outstanding",
        type=int,
        default=512,
        metavar="N",
        help="open loop: what is due while so many wait is not sent, a failure (512 a process)",
    )


def add_shape_options(parser: ArgumentParser) -> None:
    """Add how the load changes."""
    shape = parser.add_argument_group("how the load changes")
    shape.add_argument(
        "--shape",
        choices=SHAPES,
        default="steady",
        help="steady; ramp: steps up until the server is saturated; spike: ten times the load "
        "for a while; soak: steady, for ten minutes unless --seconds says otherwise (steady)",
    )
    shape.add_argument("--step-seconds", type=_positive, default=8.0, help="length of a step (8)")
    shape.add_argument(
        "--growth", type=_positive, default=2.0, help="load of a step, over the last (2)"
    )
    shape.add_argument("--most-users", type=int, default=256, help="where a ramp ends (256)")
    shape.add_argument(
        "--limit-p99-ms", type=_positive, default=2000.0, help="a ramp ends above it (2000)"
    )
    shape.add_argument(
        "--limit-failures", type=float, default=0.01, help="a ramp ends above this share (0.01)"
    )
    shape.add_argument(
        "--spike-factor", type=_positive, default=10.0, help="load in the spike (10)"
    )


def share_among_users(options: Namespace) -> None:
    """Note each user's share of the rate.

    As an option, because those are what Locust's master sends to its workers. The share is that
    of the number of users asked for at first; a shape that adds users adds load.

    Raises:
        ValueError: an open loop without a rate.
    """
    if options.arrivals != "closed" and not options.rate:
        raise ValueError(f"--arrivals {options.arrivals} needs a --rate")
    users = max(1, options.num_users or 1)
    options.rate_per_user = options.rate / users if options.rate else None


def _positive(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"{word} is no number above 0")
    return value
