"""Names that a configuration gives to this server and to web pages, as browsers write them."""

import re
from contextlib import suppress
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from serve.errors import InvalidRequest

ANY: Final = "*"

_NAME: Final = re.compile(r"[a-z0-9._~-]*[a-z0-9_~-]")
_USUAL_PORTS: Final = {"http": 80, "https": 443}
_MAX_QUOTED: Final = 100


def allowed_host(given: str) -> str:
    """Return a name that clients may know the server by, as Host headers have it.

    It is a name, `*.name` for all below, `*` for all, or an address; IPv6 with or without brackets.

    Raises:
        InvalidRequest: it has a port, a scheme, a path or a wildcard within it.
    """
    name = given.lower()
    with suppress(ValueError):
        address = ip_address(name.removeprefix("[").removesuffix("]"))
        return f"[{address}]" if address.version == 6 else str(address)
    if name == ANY or _NAME.fullmatch(name.removeprefix("*.")):
        return name
    name = name[:_MAX_QUOTED]
    right = _host_of(name if "://" in name else f"//{name}") or "a name such as api.example.com"
    raise InvalidRequest(
        f"allowed host {given[:_MAX_QUOTED]!r}: no client can call a server by that; give {right}, "
        "without scheme, port and path"
    )


def check_cors_origin(origin: str, has_keys: bool) -> None:
    """Refuse what no browser says as its page's origin, and what stands for too many pages.

    Raises:
        InvalidRequest: it is no origin, or lets every page use a server that needs no key.
    """
    if origin == ANY:
        if not has_keys:
            raise InvalidRequest(
                "CORS origin '*': without keys every web page that someone opens could use this "
                "server; name the origins, or serve with keys"
            )
        return
    if origin == "null":
        raise InvalidRequest(
            "CORS origin 'null': files and sandboxed pages of every site have this origin; serve "
            "the page, and name the origin that it is served from"
        )
    right = _origin_of(origin[:_MAX_QUOTED])
    if origin != right:
        raise InvalidRequest(
            f"CORS origin {origin[:_MAX_QUOTED]!r}: no browser writes an origin like that; give "
            f"{right or 'scheme, host and port, such as https://app.example.com'}"
        )


def _origin_of(url: str) -> str | None:
    """Return the origin of a URL as browsers write it."""
    host = _host_of(url)
    if host is None:
        return None
    parts = urlsplit(url)
    usual = parts.port in (None, _USUAL_PORTS.get(parts.scheme))
    origin = f"{parts.scheme}://{host}"
    return origin if usual else f"{origin}:{parts.port}"


def _host_of(url: str) -> str | None:
    """Return the host of a URL as browsers write it; None if it has none, or is no URL."""
    try:
        parts = urlsplit(url)
        name = (parts.hostname or "").encode("idna").decode()
        if parts.port == 0:
            return None
        # What ends in a number is an address.
        if ":" not in name and not name.rpartition(".")[2].isdecimal():
            return name if _NAME.fullmatch(name) else None
        address = ip_address(name)
    except ValueError:
        return None
    return f"[{address}]" if address.version == 6 else str(address)
