"""Live policies in the Ray cluster's key-value store, shared by all replicas."""

import time
from contextlib import suppress
from typing import Any

from ray.exceptions import RayError
from ray.experimental import internal_kv

from serve.errors import Unavailable
from serve.policy.entry import VersionedPolicy
from serve.policy.model_set import ModelSet
from serve.policy.store import KEPT_COUNTS, KEPT_VERSIONS, Log, parsed, too_many

NAMESPACE = "offramp"
_NAMESPACE = NAMESPACE.encode()

# Digits of the time before each value of counts, by which the oldest are found.
_STAMP = 20
# Sets of models. Old ones are kept: a change of an outdated set must find the next version taken.
_KEPT = 20
# For one call. What the store has not taken by then, it does not take later.
TIMEOUT_S = 2.0


class RayStore:
    """A `serve.policy.store.Store`: one key per version, written only if it is absent.

    Calls raise `Unavailable` where the cluster's head does not answer in time.

    The store outlives replicas and the Serve controller. It is lost with the cluster's head, unless
    Ray's GCS is fault tolerant. Then the deployment's config or the bundle's policy applies.
    """

    def __init__(self, app_name: str) -> None:
        self._app_name = app_name

    def policies(self, model: str, after: int = 0) -> Log:
        keys = self._keys(model)
        later = [key for version, key in keys.items() if version > after]
        values: dict[bytes, bytes] = self._ask("multi_get", later, _NAMESPACE) if later else {}
        found = [parsed(model, v, values[key]) for v, key in keys.items() if key in values]
        return Log(max(keys, default=0), [entry for entry in found if entry])

    def append(self, model: str, entry: VersionedPolicy) -> bool:
        value = entry.model_dump_json().encode()
        added: int = self._ask("put", self._key(model, entry.version), value, False, _NAMESPACE)
        with suppress(Unavailable):  # the entry is there; old ones go with the next
            self._drop_old(model)
        return bool(added)

    def put_counts(self, model: str, replica: str, counts: bytes) -> None:
        prefix = self._counts_prefix(model)
        value = b"%020d%b" % (time.time_ns(), counts)
        if not self._ask("put", f"{prefix}{replica}".encode(), value, True, _NAMESPACE):
            return  # it was there, so there are no more than before
        found = self._counts(model)
        for key in sorted(found, key=lambda key: found[key][:_STAMP])[:-KEPT_COUNTS]:
            self._ask("del", key, False, _NAMESPACE)

    def counts(self, model: str) -> dict[str, bytes]:
        prefix = self._counts_prefix(model)
        return {
            key.decode().removeprefix(prefix): value[_STAMP:]
            for key, value in self._counts(model).items()
        }

    def note_alarm(self, model: str, alarm: str) -> bool:
        key = f"alarms/{self._app_name}/{model}/{alarm}".encode()
        return bool(self._ask("put", key, b"", False, _NAMESPACE))

    def model_set(self) -> ModelSet | None:
        keys = sorted(self._ask("keys", self._models_prefix.encode(), _NAMESPACE))
        value: bytes | None = self._ask("get", keys[-1], _NAMESPACE) if keys else None
        return ModelSet.model_validate_json(value) if value else None

    def put_model_set(self, wanted: ModelSet) -> bool:
        key = f"{self._models_prefix}{wanted.version:010d}".encode()
        value = wanted.model_dump_json(by_alias=True).encode()
        added: int = self._ask("put", key, value, False, _NAMESPACE)
        with suppress(Unavailable):  # the set is there; old ones go with the next
            for old in sorted(self._ask("keys", self._models_prefix.encode(), _NAMESPACE))[:-_KEPT]:
                self._ask("del", old, False, _NAMESPACE)
        return bool(added)

    def _counts(self, model: str) -> dict[bytes, bytes]:
        keys = self._ask("keys", self._counts_prefix(model).encode(), _NAMESPACE)
        found: dict[bytes, bytes] = self._ask("multi_get", keys, _NAMESPACE) if keys else {}
        return found

    def _drop_old(self, model: str) -> None:
        keys = self._keys(model)
        if len(keys) <= KEPT_VERSIONS:
            return
        beyond = list(keys.values())[:-KEPT_VERSIONS]
        values: dict[bytes, bytes] = self._ask("multi_get", beyond, _NAMESPACE)
        read = (parsed(model, v, values[key]) for v, key in keys.items() if key in values)
        baselines = [entry.version for entry in read if entry and entry.action == "baseline"]
        for version in too_many(list(keys), baselines):
            self._ask("del", keys[version], False, _NAMESPACE)

    def _keys(self, model: str) -> dict[int, bytes]:
        """Return the keys of a model's policy by version, oldest first."""
        prefix = self._prefix(model).encode()
        found = sorted(self._ask("keys", prefix, _NAMESPACE))  # versions are padded, so they sort
        return {int(key.removeprefix(prefix)): key for key in found}

    def _key(self, model: str, version: int) -> bytes:
        return f"{self._prefix(model)}{version:010d}".encode()

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

    @property
    def _models_prefix(self) -> str:
        return f"models/{self._app_name}/"

    def _counts_prefix(self, model: str) -> str:
        return f"audits/{self._app_name}/{model}/"
