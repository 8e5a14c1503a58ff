"""A model's traits where a test cares for its exits alone."""

from collections.abc import Iterable

from serve.rules.traits import Traits


def two_labels(exits: Iterable[int]) -> Traits:
    return Traits(tuple(exits), ("no", "yes"))
