"""Live policies in the Ray cluster's key-value store, shared by all replicas."""

import logging

from pydantic import ValidationError
from ray.experimental import internal_kv

from serve.policy.live import VersionedPolicy

log = logging.getLogger(__name__)

NAMESPACE = "offramp"
KEPT_VERSIONS = 100


class RayStore:
    """A `serve.policy.live.PolicyStore`: one key per version, written only if it is absent.

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
        value: bytes | None = internal_kv._internal_kv_get(keys[-1], namespace=NAMESPACE)
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
        existed = internal_kv._internal_kv_put(key, value, overwrite=False, namespace=NAMESPACE)
        for old in self._keys(model)[:-KEPT_VERSIONS]:
            internal_kv._internal_kv_del(old, namespace=NAMESPACE)
        return not existed

    def _keys(self, model: str) -> list[bytes]:
        """Return the model's keys, oldest first; versions are padded, so they sort."""
        return sorted(internal_kv._internal_kv_list(self._prefix(model), namespace=NAMESPACE))

    def _prefix(self, model: str) -> str:
        return f"policy/{self._app_name}/{model}/"
