"""What all replicas of a model have counted, those that have ended included."""

import logging

from serve.audits.counts import Counts
from serve.policy.store import CountStore

log = logging.getLogger(__name__)


class SummedCounts:
    """Sums what replicas have stored. Counts that have not changed are not parsed again."""

    def __init__(self, model: str, store: CountStore) -> None:
        """Read nothing yet."""
        self._model, self._store = model, store
        self._read: dict[bytes, Counts] = {}

    def __call__(self) -> Counts:
        """Return the sum; the store may block.

        Raises:
            Unavailable: the store does not answer.
        """
        stored, before = self._store.counts(self._model), self._read
        read = {data: before.get(data) or self._parsed(name, data) for name, data in stored.items()}
        self._read = read
        return sum((read[data] for data in stored.values()), Counts())

    def _parsed(self, replica: str, data: bytes) -> Counts:
        try:
            return Counts.from_json(data)
        except ValueError as error:
            log.warning("%s: of replica %s: %s", self._model, replica, error)
            return Counts()
