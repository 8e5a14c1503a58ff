"""All replicas that serve the same models, and those of a server that is a single process."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from pydantic import Field

from serve.api.schemas import SparseModel
from serve.classifier.catalog import Catalog
from serve.classifier.model_switch import ModelSwitch
from serve.errors import OfframpError, Unavailable
from serve.metrics.metrics import Metrics
from serve.policy.live import LivePolicy

_Result = TypeVar("_Result")
_LONGEST_REST_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ack:
    """A replica, and the version of the policy or of the models that it applies.

    Attributes:
        replica: the replica's id.
        version: the version that it applies.
        problem: why it does not apply the newest, or which of its targets it does not keep.
    """

    replica: str
    version: int
    problem: str | None = None

    @classmethod
    def of(cls, replica: str, policy: LivePolicy) -> Self:
        """Apply the newest stored policy of a model; the store may block."""
        entry = policy.refresh()
        return cls(replica, entry.version, policy.problem or None)

    @classmethod
    async def following(cls, replica: str, here: ModelSwitch) -> Self:
        """Serve the newest stored set of models in this process."""
        try:
            return cls(replica, (await here.follow()).version)
        except OfframpError as error:
            return cls(replica, here.current.version, str(error))


class Refreshed(NamedTuple):
    """The replicas that confirmed, and those that did not in time; they follow by polling.

    Attributes:
        acks: acknowledgements of those that confirmed.
        unconfirmed: how many did not.
        missing: ids of those that did not, as far as known.
    """

    acks: list[Ack]
    unconfirmed: int = 0
    missing: Sequence[str] = ()


class Followers(SparseModel):
    """Which replicas apply a new version, and which do not."""

    replicas: list[Ack] = Field(description="Replicas that apply the policy.")
    refused: list[Ack] = Field(
        default=[],
        description="Replicas that cannot follow the policy and keep the version that they have, "
        "because they serve another bundle or release. Bring them up to date, or put a "
        "policy that all follow.",
    )
    unconfirmed: int = Field(
        description="Number of replicas that do not apply it, or did not say so in time. The "
        "policy is stored; all but the refusing ones follow within seconds, or when they answer "
        "again."
    )
    missing: list[str] = Field(
        description="Ids of replicas that have not confirmed, as far as known; those that are "
        "just starting are among them.",
    )

    @classmethod
    def followers(cls, refreshed: Refreshed, version: int) -> dict[str, Any]:
        """Return these fields of a version that was made."""
        refused = [ack for ack in refreshed.acks if ack.version < version]
        return {
            "replicas": [ack for ack in refreshed.acks if ack.version >= version],
            "refused": refused,
            "unconfirmed": refreshed.unconfirmed + len(refused),
            "missing": list(refreshed.missing),
        }


class Replayed(NamedTuple):
    """What a policy would do to the texts that replicas have audited.

    Attributes:
        answers: from each replica a `serve.dry_run.predicted.OnAudits` as bytes.
        missing: how many replicas have not answered in time.
    """

    answers: list[bytes]
    missing: int = 0


class Prepared(NamedTuple):
    """What a replica says of a bundle that it was to prepare.

    Attributes:
        replica: the replica's id.
        sha256: hash of the bundle's manifest.
        problem: why it cannot serve the bundle; empty if it can.
        stops: whether that is because it is stopping.
    """

    replica: str
    sha256: str
    problem: str = ""
    stops: bool = False

    @classmethod
    async def of(cls, replica: str, here: ModelSwitch, name: str, folder: str) -> Self:
        """Prepare a bundle in this process."""
        try:
            return cls(replica, await here.prepare(name, folder))
        except OfframpError as error:
            return cls(replica, "", str(error), isinstance(error, Unavailable))


class SharedCall(Generic[_Result]):
    """Makes one call at a time, on the event loop that asks for it.

    Who asks while a call runs gets the result of the next one, with all others who ask meanwhile.
    So every result was made after it was asked for. Calls have a fifth of the time at most: after
    each there is a rest, so that those who ask without end leave the machine to other requests.
    """

    def __init__(self, call: Callable[[], Awaitable[_Result]]) -> None:
        self._call, self._rests_until_s = call, 0.0
        self._running: asyncio.Task[_Result] | None = None
        self._next: asyncio.Task[_Result] | None = None

    async def __call__(self) -> _Result:
        """Return the result, or raise what the call raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._running))
        # One who leaves does not end the call of the others.
        return await asyncio.shield(self._next)

    async def _after(self, running: "asyncio.Task[_Result] | None") -> _Result:
        if running is not None:
            await asyncio.wait([running])
        begun_s = time.monotonic()
        if begun_s < self._rests_until_s:
            await asyncio.sleep(self._rests_until_s - begun_s)
            begun_s = time.monotonic()
        self._running, self._next = self._next, None
        try:
            return await self._call()
        finally:
            ended_s = time.monotonic()
            self._rests_until_s = ended_s + min(4 * (ended_s - begun_s), _LONGEST_REST_S)


class Replicas(Protocol):
    """All replicas that serve the same models, this one included."""

    @property
    def own_id(self) -> str:
        """Of this replica; empty where there is no other."""
        ...

    @property
    def number(self) -> int:
        """How many there should be."""
        ...

    async def refresh_policy(self, model: str) -> Refreshed:
        """Make every replica apply the newest stored policy of a model."""
        ...

    async def try_on_audits(
        self, model: str, policy: str | None, here: Callable[[], Awaitable[bytes]]
    ) -> Replayed:
        """Try a policy, as JSON, on the texts that every replica has audited.

        `here` does so in this process.
        """
        ...

    async def prepare_model(self, name: str, folder: str, here: ModelSwitch) -> list[Prepared]:
        """Make every replica load a bundle beside what it serves; `here` is this one's.

        Raises:
            LoadFailed: not every replica has answered.
        """
        ...

    async def forget_model(self, name: str, here: ModelSwitch) -> None:
        """Make every replica give up what it has prepared for a model."""
        ...

    async def follow_models(self, here: ModelSwitch) -> Refreshed:
        """Make every replica serve the newest stored set of models."""
        ...

    async def metrics_text(self) -> bytes:
        """Return the metrics of every replica as Prometheus text."""
        ...


class OnlyReplica:
    """The replicas of a server that is a single process."""

    def __init__(self, catalog: Catalog, metrics: Metrics) -> None:
        self._catalog = catalog
        metrics.count_only_replica()
        # On a thread, because the page has a thousand lines and more.
        self._page = SharedCall(lambda: asyncio.to_thread(metrics.page))

    @property
    def own_id(self) -> str:
        return ""

    @property
    def number(self) -> int:
        return 1

    async def refresh_policy(self, model: str) -> Refreshed:
        # The store is asked: a model that was replaced meanwhile may have made the change.
        policy = self._catalog.find(model).policy
        return Refreshed([await asyncio.to_thread(Ack.of, "local", policy)])

    async def try_on_audits(
        self, model: str, policy: str | None, here: Callable[[], Awaitable[bytes]]
    ) -> Replayed:
        return Replayed([await here()])

    async def prepare_model(self, name: str, folder: str, here: ModelSwitch) -> list[Prepared]:
        return [await Prepared.of("local", here, name, folder)]

    async def forget_model(self, name: str, here: ModelSwitch) -> None:
        await here.forget(name)

    async def follow_models(self, here: ModelSwitch) -> Refreshed:
        return Refreshed([await Ack.following("local", here)])

    async def metrics_text(self) -> bytes:
        return await self._page()
