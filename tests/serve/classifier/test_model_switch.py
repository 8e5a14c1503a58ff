"""Replicas that share a store serve the same models: here two of them in one process."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from serve.api.model_loading import ModelChanges
from serve.api.replicas import Ack, OnlyReplica, Prepared, Refreshed
from serve.api.request import Headers, Request
from serve.assembly import Assembly, assemble_served
from serve.bundle.repository import Repository
from serve.classifier.catalog import Catalog
from serve.classifier.classifier import Classifier
from serve.classifier.model_switch import ModelSwitch
from serve.config import ServerConfig
from serve.errors import LoadFailed, OfframpError, Unavailable
from serve.metrics.metrics import Metrics
from serve.policy.database import Database
from serve.policy.document import Policy
from serve.policy.model_set import ModelSet, ServedBundle
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.task_bundles import Kind, write_task_bundle

LEAVE_LATE = Policy.model_validate({"default": {"rule": "never"}})
ASKED = Request(Headers([]), "POST")


class Two:
    """Two replicas of one deployment, and the changes that the first is asked for."""

    def __init__(self, folder: Path) -> None:
        self.config = ServerConfig(
            bundles=[str(folder / "first")],
            model_repository=folder,
            precision="fp32",
            num_threads=1,
        )
        self.store = Database()
        self.switches = [self.replica(), self.replica()]
        self.away: set[ModelSwitch] = set()
        repository = Repository(self.config.bundles, folder)
        self.changes = ModelChanges(self.switches[0], self, repository)  # type: ignore[arg-type]

    def replica(self) -> ModelSwitch:
        """Start a replica with what is stored."""
        assembly = assemble_served(self.config, self.store)
        assembly.catalog.set_baselines({})
        baseline = self.config.baseline()
        switch = ModelSwitch(assembly.catalog, assembly, self.store, baseline, 1.0)
        switch.begin()
        return switch

    async def prepare_model(self, name: str, folder: str, here: ModelSwitch) -> list[Prepared]:
        return [await Prepared.of("r", each, name, folder) for each in self.switches]

    async def forget_model(self, name: str, here: ModelSwitch) -> None:
        for each in self.switches:
            await each.forget(name)

    async def follow_models(self, here: ModelSwitch) -> Refreshed:
        present = [each for each in self.switches if each not in self.away]
        return Refreshed([await Ack.following("r", each) for each in present], len(self.away))

    async def user_config(self, folders: list[str], **aliases: str) -> None:
        """Give both replicas another `user_config`, one after the other."""
        for each in self.switches:
            models = await each.prepare_all(folders, {})
            await each.become(models, aliases, self.config.baseline([folders, aliases]))

    @property
    def served(self) -> list[dict[str, str]]:
        return [serves(each.catalog) for each in self.switches]


def serves(catalog: Catalog) -> dict[str, str]:
    """Return the bundle behind each name."""
    return {name: c.bundle.folder.name for name, c in catalog.found.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        write_task_bundle(tmp_path, Kind("single_label"), name)
    return tmp_path


def run(folder: Path, act: Callable[[Two], Awaitable[None]]) -> Two:
    """Act on two replicas, and end what they have started."""

    async def acted() -> Two:
        two = Two(folder)
        try:
            await act(two)
        finally:
            for each in two.switches:
                await each.catalog.retired()
                each.catalog.stop(60)
        return two

    return asyncio.run(acted())


def test_what_one_replica_cannot_serve_none_serves(folder: Path) -> None:
    async def act(two: Two) -> None:
        loader: Any = two.switches[1]._loader
        load = loader.load

        def fail(name: str, *rest: Any) -> Any:
            if name == "second":
                raise LoadFailed("there is not enough memory")
            return load(name, *rest)

        loader.load = fail
        with pytest.raises(LoadFailed):
            await two.changes.load(ASKED, "second", None, "why not")
        assert two.store.model_set() == two.switches[0].current
        assert not two.switches[0]._prepared

    assert run(folder, act).served == [{"first": "first"}] * 2


def test_set_that_no_replica_serves_is_taken_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_baseline = Catalog.set_baseline

    def fail(catalog: Catalog, classifier: Classifier) -> None:
        if classifier.name == "second":
            raise Unavailable("the disk is full")
        set_baseline(catalog, classifier)

    async def act(two: Two) -> None:
        with pytest.raises(LoadFailed):
            await two.changes.load(ASKED, "second", None, "why not")
        stored = two.store.model_set()
        assert stored
        assert (list(stored.models), len(stored.history)) == (["first"], 1)
        assert [each.catalog.unfollowed for each in two.switches] == [None, None]
        _, refreshed = await two.changes.load(ASKED, "third", "second", "why not")
        assert not [ack for ack in refreshed.acks if ack.problem]

    monkeypatch.setattr(Catalog, "set_baseline", fail)
    served = {"first": "first", "third": "second", "default": "first"}
    assert run(folder, act).served == [served] * 2


def test_change_of_the_policy_of_a_model_that_is_being_replaced_is_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite_manifest(folder / "second", lambda m: m.update(labels=["a", "b", "c"]))

    async def act(two: Two) -> None:
        switch = two.switches[1]
        old = switch.catalog.find("first").policy
        set_baseline = switch.catalog.set_baseline

        def changed_meanwhile(classifier: Any) -> None:
            set_baseline(classifier)
            old.change(LEAVE_LATE, None)

        monkeypatch.setattr(switch.catalog, "set_baseline", changed_meanwhile)
        await two.changes.load(ASKED, "first", "second", "why not", force=True)
        new = switch.catalog.find("first").policy
        assert new is not old
        assert new.current.version == old.current.version
        made = old.change(LEAVE_LATE, None).new
        only = OnlyReplica(switch.catalog, Metrics())
        [ack] = (await only.refresh_policy("first")).acks
        assert (ack.version, new.current.version) == (made.version, made.version)

    run(folder, act)


def test_alias_moves_while_a_bundle_is_being_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, moved, load = threading.Event(), threading.Event(), Assembly.load

    def slow(*arguments: Any) -> Classifier:
        loading.set()
        assert moved.wait(60)
        return load(*arguments)

    async def act(two: Two) -> None:
        change = asyncio.create_task(two.changes.load(ASKED, "second", None, "why not"))
        await asyncio.to_thread(loading.wait, 60)
        await two.changes.move_alias(ASKED, "best", "first", "why not")
        assert [each.catalog.aliases.get("best") for each in two.switches] == ["first", "first"]
        moved.set()
        await change

    monkeypatch.setattr(Assembly, "load", slow)
    served = {"first": "first", "best": "first", "second": "second", "default": "first"}
    assert run(folder, act).served == [served] * 2


def test_replicas_with_different_bundles_of_a_name_load_neither(folder: Path) -> None:
    async def act(two: Two) -> None:
        prepare = two.switches[1].prepare

        async def other(*given: Any) -> str:
            rewrite_manifest(folder / "second", lambda m: m.update(labels=["a", "b", "c"]))
            return await prepare(*given)

        two.switches[1].prepare = other  # type: ignore[method-assign]
        with pytest.raises(LoadFailed):
            await two.changes.load(ASKED, "second", None, "why not")

    assert run(folder, act).served == [{"first": "first"}] * 2


def test_replica_that_missed_a_change_follows_when_it_looks(folder: Path) -> None:
    async def act(two: Two) -> None:
        two.away.add(two.switches[1])
        _, refreshed = await two.changes.load(ASKED, "second", None, "why not")
        await two.changes.move_alias(ASKED, "default", "second", "why not")
        assert (len(refreshed.acks), refreshed.unconfirmed) == (1, 1)
        assert two.served[1] == {"first": "first"}
        await two.switches[1].look()
        two.switches.append(two.replica())  # one that joins now

    served = {"first": "first", "second": "second", "default": "second"}
    assert run(folder, act).served == [served] * 3


def test_replica_that_cannot_follow_goes_on_and_says_so(folder: Path) -> None:
    async def act(two: Two) -> None:
        lonely = two.switches[1]
        stored = two.store.model_set()
        assert stored
        gone = ServedBundle(folder=str(folder / "gone"), sha256="0" * 64)
        assert two.store.put_model_set(stored.loaded("gone", gone))
        with pytest.raises(LoadFailed):
            await lonely.look()
        assert "gone" in (lonely.catalog.unfollowed or "")
        await lonely.look()  # not at once again
        assert serves(lonely.catalog) == {"first": "first"}
        newest = two.store.model_set()
        assert newest
        assert two.store.put_model_set(newest.unloaded("gone"))
        await lonely.look()
        assert lonely.catalog.unfollowed is None

    run(folder, act)


def test_model_of_user_config_has_the_name_of_the_link_that_is_given(folder: Path) -> None:
    (folder / "newest").symlink_to("first")

    async def act(two: Two) -> None:
        await two.user_config([str(folder / "newest")])

    assert [set(served) for served in run(folder, act).served] == [{"newest"}] * 2


def test_user_config_that_cannot_be_served_changes_nothing(folder: Path) -> None:
    async def act(two: Two) -> None:
        for folders, aliases in (
            ([str(folder / "first"), str(folder / "none")], {}),
            ([str(folder / "first")], {"mood": "second"}),
            ([str(folder / "first")], {"first": "first"}),
        ):
            with pytest.raises(OfframpError):
                await two.user_config(folders, **aliases)

    assert run(folder, act).served == [{"first": "first"}] * 2


def test_set_of_another_deployment_is_not_followed(folder: Path) -> None:
    async def act(two: Two) -> None:
        stored = two.store.model_set() or ModelSet()
        other = stored.started({}, {}, "other:other")
        assert two.store.put_model_set(other)
        await two.switches[1].look()
        with pytest.raises(Unavailable):
            await two.changes.load(ASKED, "second", None, "why not")

    assert run(folder, act).served == [{"first": "first"}] * 2


def test_two_changes_at_once_are_both_made(folder: Path) -> None:
    async def act(two: Two) -> None:
        other = ModelChanges(two.switches[1], two, two.changes.repository)  # type: ignore[arg-type]
        await asyncio.gather(
            two.changes.load(ASKED, "second", None, "why not"),
            other.load(ASKED, "again", "second", "why not"),
            two.changes.move_alias(ASKED, "mood", "first", "why not"),
        )

    served = {"first": "first", "second": "second", "again": "second"}
    served |= {"mood": "first", "default": "first"}
    assert run(folder, act).served == [served] * 2
