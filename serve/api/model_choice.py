"""Which model a request is for, of those that its client's key may ask."""

from serve.access.gate import Client
from serve.classifier.catalog import Catalog
from serve.classifier.classifier import Classifier
from serve.errors import Forbidden, UnknownModel


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
