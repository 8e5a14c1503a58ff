"""Names of hosts and origins in a configuration, and what browsers and clients can never say."""

from pathlib import Path
from typing import Any

import pytest

from serve.config import ServerConfig
from serve.errors import InvalidRequest

KEYS = Path("keys.json")


def configured(**fields: Any) -> ServerConfig:
    return ServerConfig(bundles=["x"], **fields)


@pytest.mark.parametrize(
    "origin",
    [
        "https://app.example.com",
        "http://localhost:3000",
        "http://127.0.0.1:8080",
        "http://[::1]:3000",
        "https://xn--bcher-kva.example",
        "chrome-extension://abcdef",
    ],
)
def test_origins_as_browsers_write_them_are_taken(origin: str) -> None:
    assert configured(cors_origins=[origin]).cors_origins == [origin]


@pytest.mark.parametrize(
    ("origin", "right"),
    [
        ("https://a.example/", "https://a.example"),
        ("https://a.example/page?x#y", "https://a.example"),
        ("https://a.example:443", "https://a.example"),
        ("http://a.example:80", "http://a.example"),
        ("HTTPS://A.example", "https://a.example"),
        ("https://user:password@a.example", "https://a.example"),
        ("https://b\u00fccher.example", "https://xn--bcher-kva.example"),
        ("http://[0:0::1]:3000", "http://[::1]:3000"),
        ("http://a.example:0080", "http://a.example"),
        ("a.example", "scheme, host and port"),
        ("localhost:3000", "scheme, host and port"),
        ("https://", "scheme, host and port"),
        ("https://*.a.example", "scheme, host and port"),
        ("https://a.example,https://b.example", "scheme, host and port"),
        ("http://127.1", "scheme, host and port"),
        ("http://a.example:99999", "scheme, host and port"),
        ("", "scheme, host and port"),
    ],
)
def test_an_origin_that_no_browser_names_is_refused_with_the_right_one(
    origin: str, right: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        configured(cors_origins=[origin], keys=KEYS)
    start = f"CORS origin {origin!r}: no browser names a page's origin so; give {right}"
    assert str(refused.value).startswith(start)


def test_null_is_never_an_origin_and_all_are_one_only_with_keys() -> None:
    with pytest.raises(InvalidRequest, match="'null': pages of files and sandboxes"):
        configured(cors_origins=["null"], keys=KEYS)
    for fields in ({}, {"no_auth": True}):
        with pytest.raises(InvalidRequest, match=r"'\*': without keys every web page"):
            configured(cors_origins=["*"], **fields)
    assert configured(cors_origins=["*"], keys=KEYS).cors_origins == ["*"]


@pytest.mark.parametrize(
    "name",
    [
        "*",
        "api.example.com",
        "*.example.com",
        "localhost",
        "127.0.0.1",
        "[::1]",
        "::1",
        "API.example",
    ],
)
def test_hosts_as_clients_name_them_are_taken(name: str) -> None:
    assert configured(allowed_hosts=[name]).allowed_hosts == [name]


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("https://a.example/x", "a.example"),
        ("a.example:8000", "a.example"),
        ("a.example/", "a.example"),
        ("[::1]:8000", "[::1]"),
        ("*.a.example:80", "a name such as api.example.com"),
        ("a.*.example", "a name such as api.example.com"),
        ("*a.example", "a name such as api.example.com"),
        ("a.example.", "a name such as api.example.com"),
        ("a.example,b.example", "a name such as api.example.com"),
        ("", "a name such as api.example.com"),
    ],
)
def test_a_host_that_no_client_can_name_is_refused_with_the_right_one(
    name: str, right: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        configured(allowed_hosts=[name])
    start = f"allowed host {name!r}: no client can know the server so; give {right}, without"
    assert str(refused.value).startswith(start)
