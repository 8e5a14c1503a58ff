"""Merges the metrics pages of several replicas into one."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from serve.metrics.names import OF_REPLICAS

_HELP = "# HELP "


class ReplicaCount(NamedTuple):
    """How many replicas there are.

    Attributes:
        wanted: how many there should be: as configured, or as the autoscaler has decided.
        running: how many answer requests.
    """

    wanted: int
    running: int


def merge_pages(pages: Mapping[str, str], unreachable: int, counted: ReplicaCount) -> bytes:
    """Return one page of Prometheus text, with the replica as a further label of each sample.

    The lines of the pages are copied: to parse and print them again takes 0.1 s for each replica.

    Args:
        pages: the page of each replica, as prometheus_client writes it.
        unreachable: number of replicas that gave no page.
        counted: how many replicas there are.
    """
    declared: dict[str, list[str]] = {}  # the lines that declare a family
    samples: dict[str, list[str]] = {}
    for replica, page in pages.items():
        own = f'replica="{replica}"'
        for name, lines in _families(page):
            declared.setdefault(name, [line for line in lines if line[0] == "#"])
            of_family = samples.setdefault(name, [])
            of_family += [_labelled(line, own) for line in lines if line[0] != "#"]
    merged = [line for name, lines in declared.items() for line in (*lines, *samples[name])]
    registry = CollectorRegistry()
    for name, number in zip(OF_REPLICAS, (*counted, len(pages), unreachable), strict=True):
        gauge = Gauge(f"offramp_{name}", OF_REPLICAS[name].text, registry=registry)
        gauge.set(number)
    text = "".join(f"{line}\n" for line in merged)
    return text.encode() + generate_latest(registry)


def _families(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each family with its lines; each begins with its help."""
    for lines in page.split(f"\n{_HELP}"):
        name, _, rest = lines.removeprefix(_HELP).partition(" ")
        yield name, f"{_HELP}{name} {rest}".splitlines()


def _labelled(sample: str, label: str) -> str:
    """Return a sample with a label more; `name 1` or `name{a="b"} 1`."""
    labels, brace, value = sample.rpartition("}")
    if brace:
        return f"{labels},{label}}}{value}"
    name, _, value = sample.partition(" ")
    return f"{name}{{{label}}} {value}"
