"""`python -m loadtest.demo BUNDLE`: see texts leave a model at different layers.

Compares the bundle at full depth with transformers, if --model names what it was made from. Starts
a server, classifies three texts under targets and rules, shows what the targets became, changes the
policy's threshold while the server runs, and shows what early exits gain over the whole model.
"""

import argparse
import sys
import textwrap
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from loadtest.http.client import Client, Json
from loadtest.http.console import print_text, run_command, started
from loadtest.http.metrics_page import MetricsPage
from loadtest.http.server_process import ServerProcess, serve_bundle
from loadtest.load.texts import make_sentences
from serve.errors import OfframpError
from serve.rules import EXIT_RULE

TEXTS = (
    "The movie was awesome.",
    "You are good at messing up.",
    "I wonder whether the plot was written by a 12-year-old or by an award-winning writer.",
)
TARGETS: tuple[Json, ...] = tuple({"target": {"max_disagreement": share}} for share in (0.01, 0.03))
WISHES: tuple[Json, ...] = (
    *TARGETS,
    {"rule": "entropy", "threshold": 0.2},
    {"rule": "patience", "patience": 2},
)
CAREFUL: Json = {"rule": "entropy", "threshold": 0.01}
BOLD: Json = {"rule": "entropy", "threshold": 0.6}
WHOLE: Json = {"rule": "never"}
# As many texts a request, and requests a round.
GAIN_TEXTS, GAIN_REQUESTS, GAIN_ROUNDS = 32, 8, 3


class DemoFailed(OfframpError):
    """The server does not do what the demonstration says it does."""


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; 0 only if everything it claims was seen."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.demo", description=__doc__)
    parser.add_argument("bundle", type=Path, help="bundle to serve")
    parser.add_argument("--model", type=Path, help="what the bundle was exported from")
    given, console = parser.parse_args(arguments), Console()
    if given.model is not None:
        work = partial(_compare, given.bundle, given.model, console)
        failed = run_command("comparison", console, work)
        if failed:
            return failed
    return run(serve_bundle(given.bundle), console)


def _compare(bundle: Path, model: Path, console: Console) -> int:
    began = time.monotonic()
    with console.status("comparing the bundle with transformers"):
        import transformers  # noqa: F401 - its import takes longer than the comparison

        imported = time.monotonic()
        said = compare(bundle, model)
    took = f"{time.monotonic() - imported:.1f} s, after {imported - began:.1f} s of imports"
    print_text(console, f"the bundle was {said} ({took})")
    return 0


def compare(bundle_folder: Path, model_folder: Path) -> str:
    """Compare a bundle, as the server runs it, with transformers' own classes, at full depth.

    Args:
        bundle_folder: with an fp32 variant.
        model_folder: what the bundle was exported from.

    Returns:
        What was compared, in one line.

    Raises:
        UnusableCheckpoint: something differs; the message shows the first difference.
    """
    import torch

    from models.checkpoints import comparison, load
    from serve.bundle.loader import load_bundle
    from serve.runtime.hardware import available_threads
    from serve.runtime.placement import Placement, build_runner
    from serve.tokenization.tokenizer import TextEncoder

    bundle = load_bundle(bundle_folder)
    runner = build_runner(bundle, Placement("cpu", "fp32"), available_threads())

    def logits(ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        mask, last = torch.ones_like(ids), len(runner) - 1
        step = runner.start(ids.numpy(), mask.numpy(), types.numpy(), until=last)
        return torch.from_numpy(step.logits)

    tokenizer = TextEncoder(bundle.tokenizer_path, bundle.manifest.max_tokens)
    served = comparison.Served(tokenizer, logits)
    return comparison.compare(model_folder, load(model_folder), served)


def run(server: ServerProcess, console: Console) -> int:
    """Start the server, demonstrate, stop it; return the exit status."""

    def work() -> int:
        with started(server, console):
            demonstrate(Client(server.url), console)
        return 0

    return run_command("demonstration", console, work)


def demonstrate(client: Client, console: Console) -> None:
    """Show targets, rules, a changed policy and the gain of a running server.

    Raises:
        DemoFailed: what was shown is not what it should be.
    """
    answers = [[client.classify(text, wish) for wish in WISHES] for text in TEXTS]
    console.print(_answers_table(answers))
    console.print(_targets_table(answers[0]))
    _change_threshold(client, console)
    wanted = len(TEXTS) * (len(WISHES) + 2)
    counted = MetricsPage.of(client.metrics()).exits().total()
    if counted != wanted:
        raise DemoFailed(f"the metrics count {counted} exits, but there were {wanted} answers")
    console.print(_gain_table(client))


def _change_threshold(client: Client, console: Console) -> None:
    """Change the default rule and show that texts sent without a rule leave elsewhere."""
    before = [client.classify(text) for text in TEXTS]
    model = before[0]["model"]
    live = client.policy(model)
    exits = [_exit(answer) for answer in before]
    default = CAREFUL if any(each["layer"] < each["layers"] for each in exits) else BOLD
    version = client.replace_policy(model, live, live["policy"] | {"default": default})["version"]
    after = [client.classify(text) for text in TEXTS]
    title = f"The default rule changed to {wish_text(default)}, without a restart"
    table = _table(title, "text", "exit layer\nbefore", "exit layer\nnow", "policy\nversion")
    for text, old, new in zip(TEXTS, before, after, strict=True):
        versions = f"{old['policy_version']} -> {new['policy_version']}"
        table.add_row(text, _layer(old), _layer(new), versions)
    console.print(table)
    stale = {answer["policy_version"] for answer in after} - {version}
    if stale:
        raise DemoFailed(f"answers name policy version {stale} after {version} was accepted")
    if [_layer(answer) for answer in before] == [_layer(answer) for answer in after]:
        raise DemoFailed("no text leaves elsewhere since the default rule was changed")


def _gain_table(client: Client) -> Table:
    """Have the same made-up sentences classified by each target or rule, in turns."""
    wishes, texts = (WHOLE, *TARGETS), make_sentences(GAIN_TEXTS * GAIN_REQUESTS, seed=0)
    requests = [texts[i : i + GAIN_TEXTS] for i in range(0, len(texts), GAIN_TEXTS)]
    layers, took_s = [0] * len(wishes), [0.0] * len(wishes)
    for _ in range(GAIN_ROUNDS):
        for place, wish in enumerate(wishes):
            began_s = time.monotonic()
            for request in requests:
                results = client.classify(request, wish)["results"]
                layers[place] += sum(result["exit"]["layer"] for result in results)
            took_s[place] += time.monotonic() - began_s
    num = len(texts) * GAIN_ROUNDS
    title = f"What early exits gain here: {len(texts)} sentences, {GAIN_TEXTS} a request"
    table = _table(
        f"{title}, one at a time", "target or rule", "mean\nlayers", "answers/s", "times\nas many"
    )
    for wish, total, seconds in zip(wishes, layers, took_s, strict=True):
        figures = f"{total / num:.2f}", f"{num / seconds:.0f}", f"{took_s[0] / seconds:.2f}"
        table.add_row(wish_text(wish), *figures)
    return table


def _answers_table(answers: Sequence[Sequence[Json]]) -> Table:
    """Return a table with a row per text and a line per wish."""
    head = ("text", "target or rule", "label", "score", "exit\nlayer", "reason")
    table = _table("Each request says what it wants, or chooses its rule", *head)
    for text, replies in zip(TEXTS, answers, strict=True):
        lines = []
        for wish, reply in zip(WISHES, replies, strict=True):
            (result,) = reply["results"]
            said = result["label"], f"{result['score']:.3f}"
            lines.append((wish_text(wish), *said, _layer(reply), _exit(reply)["reason"]))
        # The texts are written out in the last table.
        short = textwrap.shorten(text, 32, placeholder=" ...")
        table.add_row(short, *map("\n".join, zip(*lines, strict=True)))
    return table


def _targets_table(answers: Sequence[Json]) -> Table:
    """Return what each target has become."""
    head = ("target", "rule", "mean\nlayers", "certified")
    table = _table("What the targets became", *head)
    for wish, answer in zip(TARGETS, answers, strict=False):
        if "exit_rule" not in answer:
            raise DemoFailed("an answer does not say what its target became")
        rule, layers = answer["exit_rule"], f"{answer['expected_layers']:.2f}"
        table.add_row(wish_text(wish), wish_text(rule), layers, _promise(answer))
    return table


def _promise(answer: Json) -> str:
    match answer:
        case {"certificate": {"epsilon": epsilon, "delta": delta, "n": n}}:
            return f"at most {100 * epsilon:g} % (delta {delta:g}, n {n})"
        case {"exit_rule": {"rule": "never"}}:
            return "runs all layers"
    return "no"


def _table(title: str, first: str, *headings: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", leading=1, pad_edge=False)
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def wish_text(wish: Json) -> str:
    """Return a target or a rule in a few words."""
    match wish:
        case {"target": {"max_disagreement": share}}:
            return f"at most {100 * share:g} % differ"
        case {"rule": "never"}:
            return "the whole model"
    return EXIT_RULE.validate_python(wish).text()


def _exit(answer: Json) -> Any:
    return answer["results"][0]["exit"]


def _layer(answer: Json) -> str:
    return f"{_exit(answer)['layer']} of {_exit(answer)['layers']}"


if __name__ == "__main__":
    sys.exit(main())
