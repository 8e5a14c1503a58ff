"""Which proxy a call of ours goes through."""

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxies_for(url: str) -> dict[str, str]:
    """Return the proxy by scheme; none for this machine's addresses and those of `no_proxy`."""
    where, found = urlsplit(url), getproxies()
    if where.scheme not in found or _is_own(where.hostname or "") or proxy_bypass(where.netloc):
        return {}
    return {where.scheme: found[where.scheme]}


def _is_own(host: str) -> bool:
    """Tell whether a host is this machine, in any form that needs no look-up: `127.1` is one."""
    name = host.rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(socket.getaddrinfo(name, None, flags=socket.AI_NUMERICHOST)[0][4][0])
    except (OSError, ValueError):
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_unspecified
