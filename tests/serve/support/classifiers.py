"""A model in this process, asked without a server."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

from serve.bundle.loader import Bundle
from serve.classifier.classifier import Classifier
from serve.classifier.options import EngineOptions
from serve.policy.database import Database
from serve.policy.document import Policy


@contextmanager
def running(
    bundle: Bundle, policy: Policy | None = None, tokenizing: int = 1, **options: Any
) -> Iterator[Classifier]:
    """Run a model until the block is left.

    Args:
        bundle: the model.
        policy: to be followed; without it, requests bring their own rules.
        tokenizing: threads that tokenize long texts.
        options: fields of `EngineOptions`.
    """
    with ThreadPoolExecutor(tokenizing) as pool:
        wanted = EngineOptions(num_threads=1, **options)
        classifier = Classifier(bundle, wanted, Database(), Mock(), pool)
        if policy:
            classifier.policy.set_baseline(policy, "config")
        classifier.start()
        try:
            yield classifier
        finally:
            classifier.stop(0)
