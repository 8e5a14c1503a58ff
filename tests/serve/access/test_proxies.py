import pytest

from serve.access.proxies import TrustedProxies
from serve.errors import InvalidRequest

PROXIES = TrustedProxies(["10.0.0.0/8", " 192.0.2.7", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", "203.0.113.5", "203.0.113.5"),
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),  # no proxy of ours
        ("10.0.0.1", "198.51.100.1, 203.0.113.5", "203.0.113.5"),  # the left one is a claim
        ("10.0.0.1", "198.51.100.1,203.0.113.5 , 192.0.2.7,10.9.9.9", "203.0.113.5"),
        ("10.0.0.1", "10.0.0.3,10.0.0.2", "10.0.0.3"),  # the client is on our network
        ("10.0.0.1", "203.0.113.5:4711", "203.0.113.5"),
        ("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("10.0.0.1", "2001:DB8:0::1", "2001:db8::1"),
        ("fd00::1", "[2001:db8::1]", "2001:db8::1"),
        ("::ffff:10.0.0.1", "::ffff:203.0.113.5", "203.0.113.5"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.5, _hidden", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.5, evil.example, 192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "203.0.113.5\x85x", "10.0.0.1"),
        ("10.0.0.1", ",,", "10.0.0.1"),
        ("10.0.0.1", "9" * 5000, "10.0.0.1"),
        ("10.0.0.1", "203.0.113.5" + " " * 100 + "x", "10.0.0.1"),
        ("10.0.0.1", ",".join(["10.0.0.2"] * 9999), "10.0.0.2"),
        ("10.0.0.1", "203.0.113.5" + ",10.0.0.2" * 99, "203.0.113.5"),
        ("", "203.0.113.5", ""),  # a socket of Unix
        ("unix", "203.0.113.5", "unix"),
    ],
)
def test_client_is_the_rightmost_address_that_is_no_trusted_proxy(
    peer: str, forwarded: str, client: str
) -> None:
    assert PROXIES.client(peer, forwarded) == client
    assert TrustedProxies().client(peer, forwarded) in (peer, peer.removeprefix("::ffff:"))


@pytest.mark.parametrize("given", ["*", "", "proxy.example", "10.0.0.1/8", "10.0.0.0/33", "unix:"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequest):
        TrustedProxies([given])
