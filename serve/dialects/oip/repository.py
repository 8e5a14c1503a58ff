"""Triton's extension for model repositories: loading and unloading."""

from collections.abc import Iterable

from serve.api.context import AppContext
from serve.api.finished import to_its_end
from serve.api.model_changes import Asker
from serve.api.request import Request
from serve.api.routes.model_changes import changes_of
from serve.errors import InvalidTensor

# Clients send it with every unload.
_HARMLESS = "unload_dependents"


async def load_model(
    context: AppContext, request: Request, name: str, parameters: Iterable[str]
) -> None:
    """Load a model, or its bundle anew, in every replica.

    Raises:
        OfframpError: it cannot be loaded; nothing has changed.
    """
    _check(parameters)
    await to_its_end(request, changes_of(context).load(name, None, Asker(request)))


async def unload_model(
    context: AppContext, request: Request, name: str, parameters: Iterable[str]
) -> None:
    """Serve a model no more.

    Raises:
        OfframpError: there is none, or an alias names it.
    """
    _check(parameters)
    await to_its_end(request, changes_of(context).unload(name, Asker(request)))


def _check(parameters: Iterable[str]) -> None:
    """Refuse what Triton would take for another configuration or other files of the model."""
    if others := sorted(set(parameters) - {_HARMLESS}):
        raise InvalidTensor(
            f"parameters: {others[0][:64]!r} is not taken: a model is loaded as its bundle is; "
            "leave it out"
        )
