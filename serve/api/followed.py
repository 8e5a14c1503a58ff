"""Which policy a request is answered under: the live one, or the candidate of a rollout."""

import re
from typing import Final

from serve.api.request import Request
from serve.classifier.classifier import Classifier
from serve.errors import InvalidRequest
from serve.policy.live import Live

# Requests with the same value are in the same arm.
STICKY: Final = "x-offramp-sticky"
_STICKY_VALUE: Final = re.compile(r"[ -~]{1,256}")


def followed_by(request: Request, classifier: Classifier) -> Live:
    """Return the policy that a request to a model follows, the same whenever it is asked for.

    Raises:
        InvalidRequest: the header that decides about it cannot be read.
    """
    live = request.followed.get(classifier.policy)
    if live is None:
        live = classifier.policy.live
        # Also without a rollout, so that no request is refused only once one has started.
        sticky = _sticky(request) if STICKY in request.headers else None
        rollout = live.entry.running
        dealt_by = f"sticky/{sticky}" if sticky else f"request/{request.request_id}"
        if live.candidate and rollout and rollout.takes(dealt_by):
            live = live.candidate
        request.followed[classifier.policy] = live
    request.arm = classifier.rollout.traffic(live.arm) if live.arm else None
    return live


def _sticky(request: Request) -> str:
    value = request.headers[STICKY]
    if STICKY in request.headers.repeated:
        raise InvalidRequest(f"{STICKY}: comes more than once; send one")
    if not _STICKY_VALUE.fullmatch(value):
        raise InvalidRequest(f"{STICKY}: must be 1 to 256 printable characters of ASCII")
    return value
