"""Who sends a request, for clients to share the server fairly."""

from starlette.requests import Request


def client_of(request: Request) -> str:
    """Return `request.state.client` where it is set, else the address; "" if it is not known.

    Behind a proxy that does not tell its clients apart, all of them are one client.
    """
    known: str = getattr(request.state, "client", "")
    return known or (request.client.host if request.client else "")
