"""Which address a request comes from, where proxies stand before the server."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from serve.errors import InvalidRequest

Address = IPv4Address | IPv6Address

# The longest address with brackets and port, and some space.
_MAX_CHARS: Final = 80


class TrustedProxies:
    """The proxies whose X-Forwarded-For and X-Forwarded-Proto are believed; by default none."""

    def __init__(self, trusted: Sequence[str] = ()) -> None:
        """Take addresses and networks, such as `10.0.0.0/8` and `::1`.

        Raises:
            InvalidRequest: one of them is neither.
        """
        self._networks = [_network(given) for given in trusted]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._networks)

    def trust(self, peer: str) -> bool:
        """Tell whether the other end of a connection is one of them."""
        address = _address(peer)
        return address is not None and self._trusted(address)

    def client(self, peer: str, forwarded: str) -> str:
        """Return the address of the client.

        Every proxy adds the address of its own peer to the right of the list, so the client is the
        rightmost address that is none of a trusted proxy. What stands to its left is its own word.
        Behind what is no address nothing is believed.

        Args:
            peer: address of the other end of the connection.
            forwarded: X-Forwarded-For.
        """
        address = _address(peer)
        if address is None:
            return peer
        for hop in reversed(forwarded.split(",")):
            if not self._trusted(address):
                break
            named = _address(hop[: _MAX_CHARS + 1])
            if named is None:
                break
            address = named
        return str(address)

    def _trusted(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def without_mapping(address: str) -> str:
    """Return an address as IPv4 where a socket for both families has it as IPv6."""
    return address.removeprefix("::ffff:") if "." in address else address


@lru_cache(maxsize=1024)
def _address(text: str) -> Address | None:
    """Return an address without its port and brackets; None if it is none."""
    if len(text) > _MAX_CHARS:
        return None
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    # A socket for both families writes IPv4 so.
    return getattr(address, "ipv4_mapped", None) or address


def _network(given: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(given.strip())
    except ValueError:
        raise InvalidRequest(
            f"trusted proxies: {given[:64]!r} is no address or network; write such as 10.0.0.7, "
            "10.0.0.0/8 or fd00::/8"
        ) from None
