"""Does leaving early pay in the engine? `python -m loadtest.bench.engine [BUNDLE]`.

Contenders run in turns within one run, so compare ratios; the rest of the machine should be idle.
The bars are for a model of BERT-base's size, which is made with random weights if no bundle is
named. On a smaller model the engine's own work weighs more.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Literal, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from loadtest.bench import sleeping_device
from loadtest.bench.engine_driver import BenchFailed, Driver, FreeSegments, driving, rows_of
from loadtest.bench.inputs import padded, random_texts, vocabulary_size
from loadtest.bench.machine import machine_facts
from loadtest.bench.one_graph import write_one_graph
from loadtest.bench.random_model import BERT_BASE, build
from loadtest.bench.sleeping_device import DeviceTimes
from loadtest.bench.whole_model import OneGraph, answer_all
from loadtest.http.console import print_text, run_typed
from loadtest.simulator.traffic import deebert_like, sst2_lengths, uniform
from models.quality.page import table
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Precision
from serve.classifier.classifier import SWITCH_INTERVAL_S
from serve.classifier.variant import model_shape
from serve.engine.scheduler import BatchLimits
from serve.engine.shape import ModelShape
from serve.rules.traits import Traits
from serve.runtime.cpu_runner import CpuRunner
from serve.runtime.hardware import available_threads
from serve.runtime.ort_session import plain_options, session_options

_ON_CPU: tuple[Precision, ...] = ("fp32", "int8")
_LENGTHS = (8, 32, 128)  # of lone texts
_MOST_OVER_WHOLE, _MOST_OVER_SHARE = 1.10, 0.03
_LEAST_OF_LAYERS = 0.95
_EARLY = 0.4  # of the layers: the mean exit on DeeBERT's easy tasks
_IN_FLIGHT = 256
_FREE_SEGMENTS, _FREE_IN_FLIGHT, _FREE_TURNS = 12, 64, 7
_LEAST_PER_SECOND = 20_000


class Budget(NamedTuple):
    """How much is run."""

    turns: int = 60  # least turns of a lone text of each length
    turns_s: float = 20.0  # least time of each length
    # Turns under full load. The fastest counts: other work slows the machine for seconds.
    rounds: int = 10
    requests: int = 768  # answered by each contender in a round
    free_rows: int = 20_000  # answers in a turn with segments that cost nothing


BUDGET = Budget()


class Bar(NamedTuple):
    """A measured value and the bound that it is held against."""

    what: str
    case: str
    value: float
    bound: float
    sense: Literal["at most", "at least"]

    @property
    def met(self) -> bool:
        """Whether the value is on the good side; NaN is not."""
        least = self.sense == "at least"
        return self.value >= self.bound if least else self.value <= self.bound


@dataclass(frozen=True)
class Model:
    """One variant of a bundle on the CPU: its segments, and the same model as one graph."""

    precision: Precision
    vocabulary: int  # number of token ids
    max_tokens: int
    shape: ModelShape
    chain: CpuRunner
    # With our settings of threads and with ONNX Runtime's own; the faster one counts.
    one_graphs: Sequence[OneGraph]

    @property
    def depth(self) -> int:
        """The last exit layer."""
        return self.shape.exits[-1]


def bench_engine(
    bundle: Annotated[
        Path | None, typer.Argument(help="Bundle folder.", show_default="BERT-base's size")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
    device: Annotated[
        Path | None,
        typer.Option(help="A GPU's times, as loadtest/bench/devices/h100.json: a GPU that sleeps."),
    ] = None,
) -> None:
    """Hold the engine against the whole model: a lone text, full load, and its own work."""
    if device:
        return _on_sleeping(device)
    num_threads = available_threads()
    machine = machine_facts(num_threads)
    with tempfile.TemporaryDirectory() as folder, Console(stderr=True).status("exporting") as says:
        path = Path(folder, BERT_BASE.name)
        loaded = load_bundle(bundle) if bundle else build(BERT_BASE, _ON_CPU, path)
        bars = list(measure(loaded, num_threads, BUDGET, says.update))
    missed = sum(not bar.met for bar in bars)
    print_text(
        Console(), f"{loaded.name}, {num_threads} threads\n\n{_table(bars)}\n\n"
        f"{len(bars) - missed} bars met, {missed} missed"
    )  # fmt: skip
    if json_file:
        lines = [bar._asdict() | {"met": bar.met} for bar in bars]
        document = {"machine": machine, "model": loaded.name, "bars": lines}
        json_file.write_text(json.dumps(document, indent=2) + "\n")


def _on_sleeping(file: Path) -> None:
    """Print rows per second on a GPU that sleeps."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as the server does
    with tempfile.TemporaryDirectory() as folder:
        lines = list(sleeping_device.measure(DeviceTimes.read(file), Path(folder, "bundle")))
    print_text(Console(), table(list(lines[0]), [list(line.values()) for line in lines]))


def measure(
    bundle: Bundle,
    num_threads: int,
    budget: Budget,
    report: Callable[[str], None],
) -> Iterator[Bar]:
    """Yield all bars.

    Args:
        bundle: its variants for CPUs are measured.
        num_threads: of every session.
        budget: how much is run.
        report: called with the name of the next step.

    Raises:
        BenchFailed: the bundle has none of them, or the engine gave a wrong answer.
    """
    found = [precision for precision in _ON_CPU if precision in bundle.manifest.variants]
    if not found:
        raise BenchFailed(f"{bundle.name} has no variant {' or '.join(_ON_CPU)}")
    report("segments that cost nothing")
    yield from own_work(budget)
    for precision in found:
        model = load(bundle, precision, num_threads)
        report(f"{precision}: a lone text")
        yield from lone_text(model, budget)
        report(f"{precision}: full load")
        yield from full_load(model, budget)


def load(bundle: Bundle, precision: Precision, num_threads: int) -> Model:
    """Load one variant; every session gets `num_threads`."""
    settings = [session_options(num_threads)]
    if num_threads > 1:  # a session's threads spin by default after a run
        settings.append(plain_options(num_threads))
    with tempfile.TemporaryDirectory() as folder:
        path = write_one_graph(bundle, precision, Path(folder))
        one_graphs = [OneGraph(path, options) for options in settings]
    manifest, chain = bundle.manifest, CpuRunner(bundle, precision, num_threads)
    shape, vocabulary = model_shape(manifest), vocabulary_size(bundle)
    return Model(precision, vocabulary, manifest.max_tokens, shape, chain, one_graphs)


def lone_text(model: Model, budget: Budget) -> Iterator[Bar]:
    """Send a text alone that leaves at the first exit, the second, ..., in random order.

    Times are from submission to outcome. Each is compared with those of its turn.
    """
    exits = np.array(model.shape.exits)
    with driving(model.chain, model.shape) as driver:
        for tokens in (each for each in _LENGTHS if each <= model.max_tokens):
            [text] = random_texts([tokens], model.vocabulary)
            inputs = padded([text], model.shape.pad_id)
            timers = [partial(_seconds, partial(one.run, inputs)) for one in model.one_graphs]
            timers += [partial(_answer, driver, [text], [layer]) for layer in exits.tolist()]
            times_s = _in_turns(timers, budget)
            wholes, ours = times_s[:, : -len(exits)], times_s[:, -len(exits) :]
            whole = wholes[:, np.median(wholes, axis=0).argmin()]
            shares = np.median(ours / ours[:, -1:], axis=0)
            case = f"{model.precision}, 1 x {tokens}"
            ratio = float(np.median(ours[:, -1] / whole))
            ms = f"{case}; one graph {1e3 * np.median(whole):.2f} ms"
            yield Bar("all layers / one graph", ms, ratio, _MOST_OVER_WHOLE, "at most")
            listed = " ".join(f"{share:.2f}" for share in shares)
            over = float((shares - exits / model.depth).max())
            what = "share of the time - share of the layers, worst exit"
            yield Bar(what, f"{case}; {listed}", over, _MOST_OVER_SHARE, "at most")


def full_load(model: Model, budget: Budget) -> Iterator[Bar]:
    """Answer the same requests by the engine and by dynamic batches of the whole model.

    The time is from the first request to the last answer, so the engine's deepest rows, which run
    in ever smaller batches at the end, count against it.
    """
    lengths = np.minimum(sst2_lengths(budget.requests, seed=1), model.max_tokens)
    texts, depth = random_texts(lengths, model.vocabulary), model.depth
    mixes = [uniform(min(2, depth), depth, depth), deebert_like(_EARLY * depth, depth)]
    with driving(model.chain, model.shape) as driver:
        timers: list[Callable[[], float]] = [
            partial(_seconds, partial(_answer_all, model, one, texts)) for one in model.one_graphs
        ]
        timers += [
            partial(_answer, driver, texts, _at_exits(model, mix.assign(lengths))) for mix in mixes
        ]
        rounds = Budget(turns=budget.rounds, turns_s=0.0)
        fastest_s = _in_turns(timers, rounds).min(axis=0)
    whole_s = fastest_s[: -len(mixes)].min()
    for mix, ours_s in zip(mixes, fastest_s[-len(mixes) :], strict=True):
        case = f"{model.precision}, {mix.name}; {len(texts) / ours_s:,.0f} texts/s"
        bound = _LEAST_OF_LAYERS * depth / mix.mean
        what = "throughput / whole model in dynamic batches"
        yield Bar(what, case, float(whole_s / ours_s), bound, "at least")


def own_work(budget: Budget) -> Iterator[Bar]:
    """Count answers per second through the engine's thread when segments cost nothing."""
    exits = tuple(range(1, _FREE_SEGMENTS + 1))
    shape = ModelShape(Traits(exits, ("no", "yes")), (1.0,) * _FREE_SEGMENTS)
    lengths = sst2_lengths(budget.free_rows, seed=2)
    texts = random_texts(lengths, 1000)
    for mix in (uniform(len(exits), len(exits), len(exits)), uniform(2, len(exits), len(exits))):
        layers, times_s = mix.assign(lengths).tolist(), []
        for _ in range(_FREE_TURNS):
            with driving(FreeSegments(len(exits), _FREE_IN_FLIGHT), shape) as driver:
                times_s.append(driver.run(rows_of(shape, texts, layers), _FREE_IN_FLIGHT))
        rate = len(texts) / min(times_s)
        what = f"answers/s with {len(exits)} segments that cost nothing"
        yield Bar(what, mix.name, rate, _LEAST_PER_SECOND, "at least")


def _in_turns(timers: Sequence[Callable[[], float]], budget: Budget) -> NDArray[np.float64]:
    """Return (turns, timers) seconds; a first turn does not count.

    In random order, because a run finds the weights of the segments before it in the caches.
    """
    draw, began = np.random.default_rng(0), perf_counter()
    taken: list[list[float]] = []
    while len(taken) <= budget.turns or perf_counter() < began + budget.turns_s:
        times_s = [0.0] * len(timers)
        for place in draw.permutation(len(timers)).tolist():
            times_s[place] = timers[place]()
        taken.append(times_s)
    return np.array(taken[1:])


def _seconds(run: Callable[[], object]) -> float:
    began = perf_counter()
    run()
    return perf_counter() - began


def _answer(driver: Driver, texts: Sequence[NDArray[np.int64]], layers: Sequence[int]) -> float:
    return driver.run(rows_of(driver.shape, texts, layers), _IN_FLIGHT)


def _answer_all(model: Model, one: OneGraph, texts: Sequence[NDArray[np.int64]]) -> None:
    answer_all(one.run, texts, _IN_FLIGHT, BatchLimits(), model.shape.pad_id)


def _at_exits(model: Model, layers: NDArray[np.int64]) -> list[int]:
    """Return the first exit at or behind each layer."""
    exits = np.array(model.shape.exits)
    found: list[int] = exits[np.searchsorted(exits, layers)].tolist()
    return found


def _table(bars: Sequence[Bar]) -> str:
    rows = []
    for bar in bars:
        digits = 0 if bar.bound > _LEAST_PER_SECOND / 2 else 3
        value, bound = (f"{each:,.{digits}f}" for each in (bar.value, bar.bound))
        verdict = "met" if bar.met else "**missed**"
        rows.append([bar.what, bar.case, value, f"{bar.sense} {bound}", verdict])
    return table(("what", "case", "value", "bar", "verdict"), rows)


if __name__ == "__main__":
    sys.exit(run_typed("benchmark", bench_engine))
