"""Which model a request is for, of those that its client's key may ask, and which policy it has."""

import re
from typing import Final

from serve.access.gate import Client
from serve.api.request import Request
from serve.classifier.catalog import Catalog
from serve.classifier.classifier import Classifier
from serve.errors import Forbidden, InvalidRequest, UnknownModel
from serve.policy.live import Live

# Requests with the same value are in the same arm of a rollout.
STICKY: Final = "x-offramp-sticky"
_STICKY_VALUE: Final = re.compile(r"[ -~]{1,256}")


def models_for(catalog: Catalog, client: Client) -> list[Classifier]:
    """Return the models that a client may ask.

    A key that is bound to an alias may ask the model that the alias names now, and a key that is
    bound to a model may ask it by any alias.
    """
    key = client.key
    if key is None or not key.models:
        return list(catalog)
    named = [catalog.found.get(name) for name in key.models]
    return [each for each in catalog if each in named]


def model_for(catalog: Catalog, client: Client, name: str | None) -> Classifier:
    """Return the model that a request names, or the only one that its client may ask.

    A client whose key is bound to models learns of no others.

    Raises:
        Forbidden: the key is bound to others.
        OfframpError: there is no such model, or none is named of several.
    """
    key = client.key
    if key is None or not key.models:
        return catalog.pick(name)
    served = models_for(catalog, client)
    found = catalog.unnamed if name is None else catalog.found.get(name)
    if found in served:
        return found
    if name is None and len(served) == 1:
        return served[0]
    if name is None or name not in key.models:
        raise Forbidden(
            f"model: the key {key.name} is bound to {', '.join(key.models)}; ask for one of these"
        )
    raise UnknownModel(f"no model {name!r} is served, though the key {key.name} is bound to it")


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
