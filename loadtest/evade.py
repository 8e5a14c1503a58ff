"""How far rules can be evaded by the text: `python -m loadtest.evade BUNDLE --data FILE`.

Changes texts, tries what works for some on all, and shows by rule how many get another answer than
at full depth, or are missed of those that it flags. A longer search finds more.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from tokenizers import Tokenizer

from loadtest.http.console import run_command
from models.data.unlabelled import read_unlabelled
from models.errors import UnusableData
from models.prediction.cli import exit_choice
from models.prediction.opening import open_model
from models.quality.cli import thresholds_of
from models.quality.flag import flagged
from models.quality.page import table
from models.quality.recorded import recorded
from models.quality.source import BundleSource
from serve.bundle.loader import load_bundle
from serve.classifier.score_map import ScoreMap
from serve.rules import ExitRule
from serve.runtime.placement import place
from serve.tokenization.tokenizer import Text

UNCHANGED, FOUND = "unchanged", "found ones on all"
KINDS = ("prefix", "suffix", "repeat", "spacing", "special tokens")
_GAPS = (" ", "\u00ad", "\u200b", ".", "-")  # between letters; two of them are not seen


class Change(NamedTuple):
    """One way to change texts: words before and behind them, and a gap between a word's letters."""

    kind: str
    before: str = ""
    behind: str = ""
    gap: str = ""
    place: float = 0.0  # of the word with gaps, from 0 to 1

    def of(self, text: str) -> str:
        """Return the text, changed."""
        words = text.split(" ")
        index = int(self.place * len(words))
        words[index] = self.gap.join(words[index])
        return " ".join(filter(None, (self.before, " ".join(words), self.behind)))


def changes(
    texts: Sequence[str], special: Sequence[str], tries: int, draw: np.random.Generator
) -> Iterator[Change]:
    """Yield so many changes of each kind; words are pieces of the data's own texts."""

    def piece(most: int) -> str:
        words = texts[int(draw.integers(len(texts)))].split() or ["."]
        start, count = draw.integers(len(words)), draw.integers(1, most + 1)
        return " ".join(words[start : start + count])

    def repeated(phrase: str) -> str:
        return " ".join([phrase] * int(np.geomspace(1, 60, 8)[draw.integers(8)]))

    for _ in range(tries):
        yield Change("prefix", before=piece(8))
        yield Change("suffix", behind=piece(8))
        yield Change("repeat", behind=repeated(piece(2)))
        yield Change("spacing", gap=str(draw.choice(_GAPS)), place=float(draw.random()))
        if special:
            tokens = repeated(special[int(draw.integers(len(special)))])
            sides = (tokens, "") if draw.integers(2) else ("", tokens)
            yield Change("special tokens", *sides)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.evade", description=__doc__)
    add = parser.add_argument
    add("bundle", type=Path)
    add("--data", type=Path, required=True, help="texts; labels are ignored")
    add("--rule", action="append", required=True, help="JSON, or a profile; several times")
    add("--flag", action="append", help="LABEL=THRESHOLD, several times: what is to be missed")
    add("--texts", type=int, default=200, help="to change (200)")
    add("--tries", type=int, default=8, help="changes of each kind (8)")
    add("--special-tokens", choices=("text", "ids"), default="ids", help="in a text (ids)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a Markdown table of what is found by rule."""
    options = _options(arguments)
    bundle, flag = load_bundle(options.bundle), thresholds_of(options.flag)
    if bundle.manifest.task == "regression":
        raise UnusableData(f"{bundle.name} gives values, which are never quite full depth's")
    placement, plain = place(bundle, "auto", "auto"), options.special_tokens == "text"
    source, wishes = BundleSource(bundle, placement, plain), map(exit_choice, options.rule)
    asked = [open_model(options.bundle, wish).rule.rule for wish in wishes]
    read, draw = read_unlabelled(options.data), np.random.default_rng(0)
    some = [read[row] for row in draw.permutation(len(read))[: 50 * options.texts]]
    counts, _, _ = _outcomes(source, flag, some, [])
    texts = [some[row] for row in np.flatnonzero(counts)[: options.texts]]
    if not texts:
        raise UnusableData("full depth flags none of the texts; give others, or another --flag")
    added = Tokenizer.from_file(str(bundle.tokenizer_path)).get_added_tokens_decoder()
    special = sorted(token.content for token in added.values() if token.special)
    words, places = [each.text for each in texts], range(len(texts))
    tried = [(row, Change(UNCHANGED)) for row in places]
    tried += [(row, c) for row in places for c in changes(words, special, options.tries, draw)]
    what = "missed of those that full depth flags" if flag else "other answers than full depth's"
    print(f"{placement.precision}: {len(texts)} texts; {what}, %\n")
    head = ["rule", "layers", UNCHANGED, *KINDS, FOUND, "texts with any of these"]
    found = _rows(lambda new: _outcomes(source, flag, new, asked), texts, tried)
    print(table(head, ([f"`{rule.text()}`", *row] for rule, row in zip(asked, found, strict=True))))
    return 0


def _outcomes(
    source: BundleSource, flag: Any, texts: Sequence[Text], rules: Sequence[ExitRule]
) -> tuple[Any, Any, Any]:
    """Return (rows,) which texts count, and (rules, rows) what is lost, and the layers run."""
    found, lost, layers = recorded(source, texts), [], []
    rows, exits = np.arange(found.num_rows), np.array(found.traits.layers)
    scores = ScoreMap.of(found.traits)
    by_exit = flagged(found, flag, scores) if flag else None
    counted = rows >= 0 if by_exit is None else by_exit[-1]
    for rule in rules:
        taken = found.taken(rule)
        if by_exit is not None and not found.by_the_exits(taken):
            raise UnusableData(f"{rule.text()} answers with several exits: leave out --flag")
        same = found.agrees(taken) if by_exit is None else by_exit[taken.exits, rows]
        lost.append(~np.asarray(same) & counted)
        layers.append(exits[taken.exits])
    return counted, lost, layers


def _rows(
    outcomes: Callable[[list[Text]], tuple[Any, Any, Any]],
    texts: list[Text],
    tried: list[tuple[int, Change]],
) -> Iterator[list[Any]]:
    """Try changes, then those that worked on all texts; yield each rule's figures."""

    def written() -> list[Text]:
        return [texts[row]._replace(text=change.of(texts[row].text)) for row, change in tried]

    _, lost, _ = outcomes(written())
    worked = [Counter(tried[row][1] for row in np.flatnonzero(each)) for each in lost]
    most = [change for each in worked for change, _ in each.most_common(20)]
    for change in dict.fromkeys(each for each in most if each.kind != UNCHANGED):
        tried += [(row, change._replace(kind=FOUND)) for row in range(len(texts))]
    counted, lost, layers = outcomes(written())
    kinds, places = np.array([c.kind for _, c in tried]), np.array([row for row, _ in tried])
    columns = [counted & (kinds == kind) for kind in (UNCHANGED, *KINDS, FOUND)]
    for each, run in zip(lost, layers, strict=True):
        shares = [100 * each[rows].mean() if rows.any() else None for rows in columns]
        yield [float(run.mean()), *shares, 100 * len({*places[each]}) / len(texts)]


if __name__ == "__main__":
    sys.exit(run_command("search", Console(stderr=True), main))
