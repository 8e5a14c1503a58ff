"""Label values that are known before any request comes.

Prometheus sees how much a counter has grown only if it has seen it before. So whatever may be
counted later is on the page as 0 from the start.
"""

from collections.abc import Iterator
from typing import Final

from serve import errors
from serve.errors import DeviceUnavailable, InvalidBundle, OfframpError
from serve.rules.reason import Reason

# Of answers to requests that have reached a model, and of those that have not.
ANSWERED: Final = ("200", "400", "403", "422", "429", "499", "500", "501", "503", "504")
REFUSED: Final = (
    *("400", "401", "403", "404", "408", "413", "415", "422", "429", "499", "500", "503"),
)
REASONS: Final = tuple(reason.label for reason in Reason if reason is not Reason.STAYS)


def _classes(base: type[OfframpError]) -> Iterator[type[OfframpError]]:
    yield base
    for each in base.__subclasses__():
        yield from _classes(each)


# No request gets those of a start that fails.
CODES: Final = sorted(
    {
        each.code
        for each in _classes(OfframpError)
        if each.__module__ == errors.__name__ and each not in (InvalidBundle, DeviceUnavailable)
    }
)
