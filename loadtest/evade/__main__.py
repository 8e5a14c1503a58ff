"""How far rules can be evaded by the text: `python -m loadtest.evade BUNDLE --data FILE`.

A certificate is about texts like those that certified. This command changes texts as their author
might, to get past a guard: with prefixes, suffixes, repetitions, gaps in words and special tokens,
drawn at random from a seed; what works for some texts is then tried on all. It shows by rule how
many of the changed texts get another answer than at full depth. With a flag it shows how many of
those that full depth flags are missed. A longer search finds more, so the figures are lower bounds.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from pydantic import ValidationError
from rich.console import Console
from tokenizers import Tokenizer

from loadtest.bench.errors import BenchFailed
from loadtest.evade.changes import FOUND, KINDS
from loadtest.evade.search import UNCHANGED, Judge, Outcome, search
from models.certification.cli import thresholds_of
from models.data.unlabelled import read_unlabelled
from models.quality.recorded import recorded
from models.quality.source import BundleSource
from serve.bundle.loader import Bundle, load_bundle
from serve.bundle.manifest import Precision
from serve.policy.applied import AppliedPolicy
from serve.policy.document import DEFAULT, Policy
from serve.policy.flag import check_flag
from serve.policy.served_ladder import ServedLadder
from serve.rules import ExitRule, NeverRule
from serve.runtime.placement import place
from serve.tokenization.tokenizer import Text
from serve.validation import explain

_FILE = {"exists": True, "dir_okay": False}
COLUMNS = (UNCHANGED, *KINDS, FOUND)


def main(
    bundle: Annotated[Path, typer.Argument(help="Bundle folder.", exists=True, file_okay=False)],
    data: Annotated[Path, typer.Option(help="Texts; labels are ignored.", **_FILE)],
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="JSON of a rule or a target; several times. Default: the policy's profiles."
        ),
    ] = None,
    flag: Annotated[
        list[str] | None,
        typer.Option(help="LABEL=THRESHOLD, several times: what full depth flags is to be missed."),
    ] = None,
    num_texts: Annotated[int, typer.Option("--texts", min=1, max=10_000, help="To change.")] = 200,
    tries: Annotated[int, typer.Option(min=1, max=1000, help="Changes of each kind.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same texts.")] = 0,
    precision: Annotated[Literal["auto", "fp32", "int8", "fp16"], typer.Option()] = "auto",
    special_tokens: Annotated[
        Literal["text", "ids"], typer.Option(help="What special tokens in a text are.")
    ] = "ids",
    examples: Annotated[int, typer.Option(min=0, help="Texts to show by rule.")] = 0,
) -> None:
    """Print a Markdown table of what is found by rule."""
    console = Console(stderr=True)
    loaded, thresholds = load_bundle(bundle), thresholds_of(flag)
    traits = loaded.manifest.traits
    if traits.task == "regression":
        raise BenchFailed(f"{loaded.name} gives values, which are never quite full depth's")
    if thresholds:
        check_flag(thresholds, traits)
    placement = place(loaded, "auto", precision)
    source = BundleSource(loaded, placement, plain=special_tokens == "text")
    rules = rules_of(loaded, placement.precision, rule or (), thresholds)
    judge = Judge(source, thresholds)
    texts = _chosen(source, judge, read_unlabelled(data), num_texts, seed)
    plan = _special_tokens(loaded), tries, seed
    with console.status(f"{loaded.name}: running changed texts"):
        found = search(source, texts, judge, list(rules.values()), plan)
    what = "missed of those that full depth flags" if flag else "other answers than full depth's"
    typer.echo(f"{loaded.name} {placement.precision}: {len(texts)} texts; {what}, %\n")
    for cells in table(list(rules), found):
        typer.echo(f"| {' | '.join(cells)} |")
    for name, outcome in zip(rules, found, strict=True):
        for text in outcome.examples[:examples]:
            typer.echo(f"\n{name}: {json.dumps(text, ensure_ascii=False)}")


def rules_of(
    bundle: Bundle, precision: Precision, asked: Sequence[str], flag: dict[str, float] | None
) -> dict[str, ExitRule]:
    """Return rules by what the table calls them; those that never leave early are left out.

    Raises:
        BenchFailed: one cannot be read, or nothing is left.
    """
    traits, temperatures = bundle.traits(precision), bundle.temperatures(precision)
    # Layers in the place of milliseconds: the rules do not depend on the machine.
    ladder = ServedLadder(traits, temperatures, lambda rule: traits.exits, bundle.ladder(precision))
    policy = _asked(asked, flag) if asked else bundle.manifest.policy
    named = AppliedPolicy(policy, ladder).named
    if asked or isinstance(policy.default, str):
        named = {name: chosen for name, chosen in named.items() if name != DEFAULT}
    rules = {
        chosen.rule.rule.text() if asked else f"{name}: {chosen.rule.rule.text()}": chosen.rule.rule
        for name, chosen in named.items()
    }
    rules = {name: each for name, each in rules.items() if not isinstance(each, NeverRule)}
    if not rules:
        raise BenchFailed(f"no rule of {bundle.name} lets a text leave early; name one by --rule")
    return rules


def _asked(written: Sequence[str], flag: dict[str, float] | None) -> Policy:
    """Return a policy with a profile for each wish, so that targets are resolved as served."""
    try:
        wishes: list[Any] = [json.loads(each) for each in written]
        settings = {"flag": flag} if flag else {"special_tokens": "ids"}
        profiles = {str(place): {"exit": w, **settings} for place, w in enumerate(wishes, 1)}
        return Policy.model_validate({"profiles": profiles})
    except ValidationError as error:
        raise BenchFailed(f"--rule: {explain(error)}") from None
    except ValueError as error:
        raise BenchFailed(f"--rule: no JSON: {error}") from None


def _chosen(
    source: BundleSource, judge: Judge, texts: list[Text], most: int, seed: int
) -> list[Text]:
    """Return some of the texts that count, at random."""
    order = np.random.default_rng(seed).permutation(len(texts))[: 50 * most]
    some = [texts[place] for place in order]
    counted = judge.counted(recorded(source, some))
    chosen = [text for text, counts in zip(some, counted, strict=True) if counts][:most]
    if not chosen:
        raise BenchFailed("full depth flags none of the texts; give others, or another --flag")
    return chosen


def _special_tokens(bundle: Bundle) -> list[str]:
    added = Tokenizer.from_file(str(bundle.tokenizer_path)).get_added_tokens_decoder()
    return sorted(token.content for token in added.values() if token.special)


def table(names: Sequence[str], found: Sequence[Outcome]) -> Iterator[list[str]]:
    """Yield the rows of a Markdown table."""
    head = ["rule", "layers", *COLUMNS, "texts with any of these"]
    yield from (head, ["---", *["---:"] * (len(head) - 1)])
    for name, each in zip(names, found, strict=True):
        shares = [_percent(each.lost.get(c, 0), each.counted.get(c, 0)) for c in COLUMNS]
        any_of_them = _percent(each.evaded, each.num_texts)
        yield [f"`{name}`", f"{each.layers:.2f}", *shares, any_of_them]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


if __name__ == "__main__":
    typer.run(main)
