"""Live policies in the Ray cluster's key-value store, shared by all replicas."""

import logging
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from ray.exceptions import RayError
from ray.experimental import internal_kv

from serve.errors import Unavailable
from serve.policy.live import VersionedPolicy

log = logging.getLogger(__name__)

NAMESPACE = "offramp"
_NAMESPACE = NAMESPACE.encode()
KEPT_VERSIONS = 100


# For one call. What the store has not taken by then, it does not take later.
TIMEOUT_S = 2.0


class RayStore:
    """A `serve.policy.live.PolicyStore`: one key per version, written only if it is absent.

    Calls raise `Unavailable` where the cluster's head does not answer in time.

    The store outlives replicas and the Serve controller. It is lost with the cluster's head, unless
    Ray's GCS is fault tolerant. Then the deployment's config or the bundle's policy applies.
    """

    def __init__(self, app_name: str) -> None:
        self._app_name = app_name

    def newest_version(self, model: str) -> int:
        keys = self._keys(model)
        return int(keys[-1].removeprefix(self._prefix(model).encode())) if keys else 0

    def latest(self, model: str) -> VersionedPolicy | None:
        keys = self._keys(model)
        if not keys:
            return None
        value: bytes | None = self._ask("get", keys[-1], _NAMESPACE)
        if value is None:
            return None
        try:
            return VersionedPolicy.model_validate_json(value)
        except ValidationError:
            log.error("%s: the stored policy %s is unreadable and ignored", model, keys[-1])
            return None

    def append(self, model: str, entry: VersionedPolicy) -> bool:
        key = f"{self._prefix(model)}{entry.version:010d}".encode()
        value = entry.model_dump_json().encode()
        added: int = self._ask("put", key, value, False, _NAMESPACE)
        with suppress(Unavailable):  # the entry is there; old ones go with the next
            for old in self._keys(model)[:-KEPT_VERSIONS]:
                self._ask("del", old, False, _NAMESPACE)
        return bool(added)

    def _keys(self, model: str) -> list[bytes]:
        """Return the model's keys, oldest first; versions are padded, so they sort."""
        return sorted(self._ask("keys", self._prefix(model).encode(), _NAMESPACE))

    def _ask(self, method: str, *args: Any) -> Any:
        # Not by `internal_kv`'s functions: they wait without bound, and write after all when the
        # head is back.
        store: Any = internal_kv.internal_kv_get_gcs_client()  # type: ignore[no-untyped-call]
        try:
            return getattr(store, f"internal_kv_{method}")(*args, timeout=TIMEOUT_S)
        except RayError:
            raise Unavailable(
                "the store of policies, in the Ray cluster's head, does not answer: the policy "
                "stays as it is; try again later"
            ) from None

    def _prefix(self, model: str) -> str:
        return f"policy/{self._app_name}/{model}/"
