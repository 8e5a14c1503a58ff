from collections.abc import Iterator

import pytest

from loadtest.bench.gpu.device_variant import DeviceVariant, Place, load, reference
from loadtest.bench.gpu.subject import Subject, subject_of
from serve.bundle.loader import Bundle


@pytest.fixture(scope="module")
def half(half_bundle: Bundle) -> DeviceVariant:
    return load(half_bundle, "fp16", Place("cpu"))


@pytest.fixture(scope="module")
def subject(half: DeviceVariant, half_bundle: Bundle) -> Iterator[Subject]:
    with subject_of(half, reference(half_bundle), None) as lent:
        yield lent
