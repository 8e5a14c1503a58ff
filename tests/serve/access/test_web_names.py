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
    ("field", "names"),
    [
        (
            "cors_origins",
            [
                "https://app.example.com",
                "http://localhost:3000",
                "http://127.0.0.1:8080",
                "http://[::1]:3000",
                "https://xn--bcher-kva.example",
                "chrome-extension://abcdef",
            ],
        ),
        (
            "allowed_hosts",
            [
                "*",
                "api.example.com",
                "*.example.com",
                "localhost",
                "127.0.0.1",
                "[::1]",
                "::1",
                "A.b",
            ],
        ),
    ],
)
def test_names_as_browsers_and_clients_write_them_are_taken(field: str, names: list[str]) -> None:
    assert getattr(configured(**{field: names}), field) == names


@pytest.mark.parametrize(
    ("field", "name", "right"),
    [
        ("cors_origins", "https://a.example/", "https://a.example"),
        ("cors_origins", "https://a.example/page?x#y", "https://a.example"),
        ("cors_origins", "https://a.example:443", "https://a.example"),
        ("cors_origins", "http://a.example:80", "http://a.example"),
        ("cors_origins", "HTTPS://A.example", "https://a.example"),
        ("cors_origins", "https://user:password@a.example", "https://a.example"),
        ("cors_origins", "https://b\u00fccher.example", "https://xn--bcher-kva.example"),
        ("cors_origins", "http://[0:0::1]:3000", "http://[::1]:3000"),
        ("cors_origins", "http://a.example:0080", "http://a.example"),
        *(
            ("cors_origins", name, None)
            for name in (
                *("a.example", "localhost:3000", "https://", "https://*.a.example", ""),
                *("https://a.example,https://b.example", "http://127.1", "http://a.example:99999"),
            )
        ),
        ("allowed_hosts", "https://a.example/x", "a.example"),
        ("allowed_hosts", "a.example:8000", "a.example"),
        ("allowed_hosts", "a.example/", "a.example"),
        ("allowed_hosts", "[::1]:8000", "[::1]"),
        *(
            ("allowed_hosts", name, None)
            for name in (
                *("*.a.example:80", "a.*.example", "*a.example", "a.example."),
                *("a.example,b.example", ""),
            )
        ),
    ],
)
def test_a_name_that_nothing_can_say_is_refused_with_the_right_one(
    field: str, name: str, right: str | None
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        configured(**{field: [name]}, keys=KEYS)
    assert right is None or f"give {right}" in str(refused.value)


def test_null_is_never_an_origin_and_all_are_one_only_with_keys() -> None:
    with pytest.raises(InvalidRequest):
        configured(cors_origins=["null"], keys=KEYS)
    for fields in ({}, {"no_auth": True}):
        with pytest.raises(InvalidRequest):
            configured(cors_origins=["*"], **fields)
    assert configured(cors_origins=["*"], keys=KEYS).cors_origins == ["*"]
