"""How often a promise breaks: `python -m loadtest.holds BUNDLE --data FILE`.

Draws texts that choose and others that certify, many times, and compares each certified rule's
share of other answers than full depth's with the bound: on all texts but those that chose it, and
on the rest, which did not certify it either. On few texts chance alone exceeds a bound that holds.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from loadtest.http.console import run_command
from models.data.unlabelled import read_unlabelled
from models.errors import UnusableData
from models.progress import progress
from models.quality.certify import certify
from models.quality.losses import losses_of
from models.quality.page import table
from models.quality.paths import EPSILONS, Tried, find_path
from models.quality.recorded import Recorded, recorded
from models.quality.source import BundleSource
from serve.bundle.loader import load_bundle
from serve.runtime.placement import place


class Kept(NamedTuple):
    """The fastest rule that is certified for a bound, in one draw.

    Attributes:
        layers: mean layers of the texts that did not choose it.
        share: of these, that with another answer than full depth's.
        on_rest: the same of those that did not certify it either.
        at_table: the share that leaves before the first layer.
    """

    layers: float
    share: float
    on_rest: float
    at_table: float


def drawn(texts: Recorded, delta: float, draw: np.random.Generator) -> dict[float, Kept]:
    """Choose a path by a third of the texts, certify it by a third, and look at all others."""
    order = draw.permutation(texts.num_rows)
    tuning, others = np.split(order, [len(order) // 3])
    num_certifying = len(others) // 2
    path = find_path(texts.of(tuning), None, num_certifying, delta)
    left = texts.of(others)
    tried = Tried.of(path, left, losses_of(left, None))
    ends = certify(tried.of_texts(np.arange(num_certifying)), delta).ends
    losses, layers = tried.of_each("disagreement"), tried.layers
    before = tried.exits < texts.traits.num_before
    found = {}
    for epsilon in EPSILONS:
        at = ends["disagreement", epsilon] - 1
        if at < 0:
            found[epsilon] = Kept(float(tried.depth), 0.0, 0.0, 0.0)
            continue
        lost, run = losses[at], layers[at]
        means = (run, lost, lost[num_certifying:], before[at])
        found[epsilon] = Kept(*(float(each.mean()) for each in means))
    return found


def _rows(texts: Recorded, options: argparse.Namespace, console: Console) -> Iterator[list[object]]:
    kinds = {"exits": texts.of_exits}
    if texts.traits.num_before:
        kinds["what is before, and exits"] = texts
    for kind, own in kinds.items():
        draw, found = np.random.default_rng(0), []  # the same draws for both
        with progress(console, kind, options.draws) as advance:
            for _ in range(options.draws):
                found.append(drawn(own, options.delta, draw))
                advance(1)
        for epsilon in EPSILONS:
            each = [draws[epsilon] for draws in found]
            layers, share, on_rest, at_table = np.mean(each, axis=0)
            above = [sum(kept.share > epsilon for kept in each)]
            above.append(sum(kept.on_rest > epsilon for kept in each))
            percents = (f"{100 * x:.2f}" for x in (at_table, share, on_rest))
            yield [kind, f"{100 * epsilon:g} %", f"{layers:.2f}", *percents, *above]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.holds", description=__doc__)
    add = parser.add_argument
    add("bundle", type=Path)
    add("--data", type=Path, action="append", required=True, help="texts that trained nothing")
    add("--draws", type=int, default=20, help="of texts that choose, and certify (20)")
    add("--delta", type=float, default=0.05, help="as of calibrate (0.05)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a Markdown table."""
    options, console = _options(arguments), Console(stderr=True)
    bundle = load_bundle(options.bundle)
    if bundle.manifest.task == "regression":
        raise UnusableData(f"{bundle.name} gives values, which are never quite full depth's")
    source = BundleSource(bundle, place(bundle, "auto", "auto"))
    read = [text for path in options.data for text in read_unlabelled(path)]
    with progress(console, "running texts", len(read)) as advance:
        texts = recorded(source, read, advance=advance)
    print(f"{source.placement.precision}: {len(read)} texts, {options.draws} draws\n")
    head = ["rules", "epsilon", "layers", "at layer 0 %", "other answers %", "on the rest %"]
    head += [f"above, of {options.draws}", "on the rest above"]
    print(table(head, list(_rows(texts, options, console))))
    return 0


if __name__ == "__main__":
    sys.exit(run_command("drawing", Console(stderr=True), main))
