"""Pins: the bundles that all replicas of a server must have, by the sha256 of their manifests.

A manifest holds the sha256 of every other file of its bundle, so its own stands for all of them.
"""

from collections.abc import Iterable, Mapping

from serve.bundle.loader import MANIFEST, Bundle, sha256_of_manifest
from serve.errors import InvalidBundle


def pins_of(bundles: Iterable[Bundle]) -> dict[str, str]:
    """Return the pins of bundles, by the names that they are served under."""
    return {bundle.name: bundle.sha256 for bundle in bundles}


def check_pins(bundles: Iterable[Bundle], pins: Mapping[str, str]) -> None:
    """Check that these are the pinned bundles; no pins at all allow any.

    Raises:
        InvalidBundle: a bundle is another than the pinned one, or a pin has no bundle.
    """
    found = {bundle.name: bundle for bundle in bundles}
    for name, pinned in pins.items():
        if name not in found:
            raise InvalidBundle(
                f"bundle_sha256 names {name!r}, and there is no such model; there is "
                f"{', '.join(found)}"
            )
        check_pin(found[name], pinned)
    unpinned = sorted(found.keys() - pins.keys()) if pins else []
    if unpinned:
        raise InvalidBundle(
            f"{found[unpinned[0]].folder}: the server was started without a model of this name; "
            "the folder, or the link to it, must have the same name on every node"
        )


def check_pin(bundle: Bundle, pinned: str) -> None:
    """Raise `InvalidBundle` if this is another bundle than the pinned one."""
    if bundle.sha256 != pinned:
        raise InvalidBundle(
            f"{bundle.folder}: holds another bundle than the server was started with: the sha256 "
            f"of its {MANIFEST} is {bundle.sha256}, pinned is {pinned}; put the pinned bundle "
            "back, or restart the server, or deploy it anew, for all replicas to serve this one"
        )


def check_unchanged(bundle: Bundle) -> None:
    """Check, after its files have been read, that no other bundle has taken the folder meanwhile.

    Raises:
        InvalidBundle: one has.
    """
    if sha256_of_manifest(bundle.folder) != bundle.sha256:
        raise InvalidBundle(f"{bundle.folder}: was replaced while it was loaded; start again")
