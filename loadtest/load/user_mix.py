"""How often each way of asking is used: `default=4,threshold=2,patience=1,batch=1`."""

from argparse import ArgumentTypeError

WAYS = ("default", "threshold", "patience", "batch")
DEFAULT_WEIGHTS = {"default": 4, "threshold": 2, "patience": 1, "batch": 1}


def parse_weights(words: str) -> dict[str, int]:
    """Return the weight of every way of asking; those that are not named get none.

    Raises:
        ArgumentTypeError: a name or a number is wrong, or nothing would be asked at all.
    """
    weights = dict.fromkeys(WAYS, 0)
    for part in words.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        if name not in WAYS or not number.isdecimal():
            raise ArgumentTypeError(
                f"{part!r} is no weight: say for example default=4,batch=1; "
                f"the ways of asking are {', '.join(WAYS)}"
            )
        weights[name] = int(number)
    if not any(weights.values()):
        raise ArgumentTypeError("all weights are 0, so nothing would be asked")
    return weights
