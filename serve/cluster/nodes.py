"""The nodes of a Ray cluster: what a replica would find on each, looked at before a deployment."""

import logging
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from serve.access.keys import read_keys
from serve.assembly import verified_bundles
from serve.bundle.pins import pins_of
from serve.config import ServerConfig
from serve.dialects.registry import choose_dialects
from serve.errors import InvalidBundle, OfframpError
from serve.runtime.hardware import choose_precision

# Below Ray Serve's logger, whose lines are kept where the app is built.
log = logging.getLogger("ray.serve.offramp")

# For all nodes together; verifying reads every file of the bundles.
_TIMEOUT_S: Final = 120.0


class _Node(NamedTuple):
    id: str
    address: str
    resources: dict[str, float]


class NodeReport(NamedTuple):
    """What a replica would find on a node.

    Attributes:
        pins: pins of the bundles there.
        problem: why a replica would not start; empty if it would.
    """

    pins: dict[str, str]
    problem: str = ""


def own_address() -> str:
    """Return the address of this process's node, as Ray lists it."""
    own = ray.get_runtime_context().get_node_id()
    return next((node.address for node in _alive() if node.id == own), "")


def look_at_nodes(config: ServerConfig) -> dict[str, str]:
    """Verify the bundles on every node that may run a replica, and return their pins.

    A node that does not answer in time is left out: a replica there looks for itself.

    Raises:
        InvalidBundle: a replica would not start on a node, or nodes have different bundles.
    """
    # A cluster's head often offers no processors.
    serving = [node for node in _alive() if node.resources.get(config.node_resource)]
    found = _ask(serving, config)
    problems = [f"on node {address}: {each.problem}" for address, each in found.items()]
    wrong = [said for said, each in zip(problems, found.values(), strict=True) if each.problem]
    if wrong:
        more = f" (and on {len(wrong) - 1} more nodes)" if len(wrong) > 1 else ""
        raise InvalidBundle(f"nothing is deployed: {wrong[0]}{more}")
    if not found:
        log.warning("the bundles are not verified, as no node that may run replicas answers")
        return config.bundle_sha256
    return _agreed({address: each.pins for address, each in found.items()})


def look(config: ServerConfig) -> NodeReport:
    """Return what a replica would find in this process's place, without loading a model."""
    try:
        choose_dialects(config.dialects)
        if config.keys:
            read_keys(config.keys)
        bundles = verified_bundles(config.bundles, config.active_exits, config.bundle_sha256)
        for bundle in bundles:
            choose_precision(config.precision, bundle)
    except (OfframpError, OSError) as error:
        return NodeReport({}, str(error))
    return NodeReport(pins_of(bundles))


def _alive() -> list[_Node]:
    nodes: list[Any] = ray.nodes()  # type: ignore[no-untyped-call]
    return [
        _Node(node["NodeID"], node["NodeManagerAddress"], node["Resources"])
        for node in nodes
        if node["Alive"]
    ]


def _ask(nodes: Iterable[_Node], config: ServerConfig) -> dict[str, NodeReport]:
    """Return what is found on each node that answers in time, by its address."""
    task: Any = ray.remote(num_cpus=0, max_retries=0)(look)
    asked = {}
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        asked[task.options(scheduling_strategy=there).remote(config)] = node.address
    if asked:
        ray.wait(list(asked), num_returns=len(asked), timeout=_TIMEOUT_S)
    found = {}
    for reference, address in asked.items():
        try:
            found[address] = ray.get(reference, timeout=0)
        except RayError as error:
            log.warning("the bundles on node %s are not verified: %s", address, error)
            ray.cancel(reference, force=True)
    return found


def _agreed(pins_by_node: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the pins that all nodes have."""
    (first, pins), *others = pins_by_node.items()
    for address, differing in others:
        if differing != pins:
            name = next(n for n in pins | differing if pins.get(n) != differing.get(n))
            raise InvalidBundle(
                f"nothing is deployed: {name} is not the same bundle on all nodes: the sha256 of "
                f"its manifest is {pins.get(name)} on {first} and {differing.get(name)} on "
                f"{address}; copy one of them to every node"
            )
    return pins
