"""The columns that data files are known to have, and which of a file's columns are read.

The names are those of the server, of the `datasets` library, and of the files that GLUE, ELUE,
SNLI, MNLI and SICK distribute. Case does not matter.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from serve.rules.traits import Task, listed

PAIRS = (
    ("text_a", "text_b"),
    ("text", "text_pair"),
    ("text", "text_b"),
    ("text1", "text2"),
    ("sentence1", "sentence2"),
    ("sentence", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("#1 string", "#2 string"),
)
TEXTS = ("text", "text_a", "sentence", "sentence1", "review", "question", "content", "comment_text")
TEXT_NAMES = frozenset(TEXTS).union(*PAIRS)
TOKENS = ("tokens", "words")
TAGS = ("tags", "ner_tags")
SETS = ("labels",)
VALUES = ("score", "relatedness_score")
LABELS = ("label", "gold_label", "is_duplicate", "quality", "sentiment", "entailment_judgment")
# Where annotators did not agree, SNLI and MNLI write a dash.
GOLD, NO_GOLD = "gold_label", "-"
# Columns that say something of a row and are no part of its input, though they may hold words.
DESCRIPTIONS = frozenset(
    [
        *(f"{text}{kind}_parse" for text in ("sentence1", "sentence2", "premise", "hypothesis")
          for kind in ("", "_binary")),
        *(f"label{annotator}" for annotator in range(1, 6)),
        *("annotator_labels", "annotator", "genre", "label_text", "source1", "source2"),
        *("sentence_a_original", "sentence_b_original"),
    ]
)  # fmt: skip
# Some rows of QQP lack columns; the `datasets` library leaves them out.
BROKEN_ROWS = frozenset(["qid1", "qid2", "is_duplicate"])

# By task, the columns that may hold its answer; the first group with any of them counts.
_ANSWERS: Mapping[Task | None, Sequence[Sequence[str]]] = {
    "single_label": (LABELS, SETS),
    "multi_label": (SETS, LABELS),
    "regression": ((*LABELS, *VALUES),),
    "token": (TAGS,),
    None: (SETS, LABELS, VALUES),
}
KNOWN_NAMES = TEXT_NAMES.union(*(names for group in _ANSWERS.values() for names in group))
# Letters that stand without blanks between words, such as those of Chinese, Japanese and Thai.
_NUM_CASELESS = 4


@dataclass(frozen=True)
class Columns:
    """The columns that a user names; those that are known are found without.

    Attributes:
        texts: the text, or the two of a pair.
        label: the label.
        also: a further column that the caller reads itself, if it is there; in small letters.
    """

    texts: tuple[str, ...] = ()
    label: str | None = None
    also: str | None = None


# No column is named: those that are known are found.
KNOWN = Columns()


class Choice(NamedTuple):
    """The columns that are read.

    Attributes:
        texts: the text's, or the two of a pair.
        label: None if there is none.
        unread: the other columns.
        doubtful: those of them that might hold a part of the input.
    """

    texts: tuple[str, ...]
    label: str | None
    unread: tuple[str, ...]
    doubtful: tuple[str, ...]


class UnknownColumns(Exception):
    """The names do not tell which columns to read; the message says why, and what would do."""


def choose(names: Sequence[str], asked: Columns, task: Task | None) -> Choice:
    """Choose the columns to read.

    Args:
        names: of all columns, in the order of the file.
        asked: the columns that the user names.
        task: what the label means; None if no label is needed.

    Raises:
        UnknownColumns: no column or more than one might be the one.
    """
    known = {fold(name): name for name in names}
    if len(known) < len(names):
        raise UnknownColumns(
            f"of {listed(names)}, two differ in case only; a name may be there once"
        )
    label = _label(known, asked.label, task)
    texts = _texts(known, asked.texts, label)
    read = {*texts, label, known.get(asked.also or "")}
    unread = {key: name for key, name in known.items() if name not in read}
    doubtful = [unread[key] for key in unread if key not in DESCRIPTIONS and not asked.texts]
    return Choice(texts, label, tuple(unread.values()), tuple(doubtful))


def fold(name: str) -> str:
    """Return a column's name as it is compared."""
    return name.strip().lower()


def names_without_header(first: Sequence[str]) -> list[str]:
    """Return the columns of a file that is distributed without a header; empty for others.

    Args:
        first: the fields of the file's first line.
    """
    if len(first) == 4 and first[1] in ("0", "1") and first[2] in ("", "*"):
        return ["source", "label", "mark", "sentence"]  # CoLA
    if len(first) == 3 and first[2] in ("entails", "neutral"):
        return ["premise", "hypothesis", "label"]  # SciTail
    if len(first) >= 7 and first[0].startswith("main-"):
        return [
            "genre",
            "filename",
            "year",
            "old_index",
            "score",
            "sentence1",
            "sentence2",
        ]  # STS-B
    return []


def reads_as_text(value: object) -> bool:
    """Return whether a value looks like a text of several words."""
    if isinstance(value, dict):
        return any(map(reads_as_text, value.values()))
    if isinstance(value, list):
        return any(map(reads_as_text, value))
    if not isinstance(value, str):
        return False
    words = sum(has_letters(word) for word in value.split())
    caseless = sum(each.isalpha() and each.lower() == each.upper() for each in value)
    return words > 1 or caseless >= _NUM_CASELESS


def has_letters(value: object) -> bool:
    """Return whether a value holds any letter."""
    return isinstance(value, str) and re.search(r"[^\W\d_]", value) is not None


def _label(known: Mapping[str, str], asked: str | None, task: Task | None) -> str | None:
    # Where no label is needed, the file may lack the one that other files have.
    if asked is not None and (task or fold(asked) in known):
        return _asked(known, asked, "--label-column")
    for group in _ANSWERS[task]:
        found = [known[name] for name in group if name in known]
        if len(found) > 1 and task:
            raise UnknownColumns(
                f"{listed(found)} may each be the label: name one, as in --label-column {found[0]}"
            )
        if found:
            return found[0]
    if task is None:
        return None
    wanted = listed(name for group in _ANSWERS[task] for name in group)
    raise UnknownColumns(
        f"found {listed(known.values())}; none is known to hold labels ({wanted} are). "
        "--label-column names it, if this line is the header. Without labels, as in GLUE's test "
        "files, only `offramp calibrate --unlabelled` and `offramp predict` take a file"
    )


def _texts(known: Mapping[str, str], asked: Sequence[str], label: str | None) -> tuple[str, ...]:
    if len(asked) > 2:
        raise UnknownColumns(f"--text-columns {','.join(asked)}: a model reads one text or two")
    if asked:
        return tuple(_asked(known, each, "--text-columns") for each in asked)
    found = [key for key, name in known.items() if key in TEXT_NAMES and name != label]
    pair = next((pair for pair in PAIRS if sorted(pair) == sorted(found)), found)
    if (len(found) == 1 and found[0] in TEXTS) or pair in PAIRS:
        return tuple(known[name] for name in pair)
    if found:
        shown = [known[name] for name in found]
        raise UnknownColumns(
            f"the columns {listed(shown)} are no pair that is known: name the text, or the two of "
            f"a pair, as in --text-columns {','.join(shown[:2])}"
        )
    if words := [known[name] for name in TOKENS if name in known]:
        raise UnknownColumns(
            f"found {listed(known.values())}; lists of words, as in {words[0]}, are read with a "
            "tag for each: --task token, and --label-column names the tags"
        )
    raise UnknownColumns(
        f"found {listed(known.values())}; none is known to hold texts ({listed(TEXTS)}, and pairs "
        "such as premise and hypothesis are). If this line is the header, --text-columns names it, "
        "or the two of a pair; if there is no header, add one"
    )


def _asked(known: Mapping[str, str], asked: str, option: str) -> str:
    if fold(asked) not in known:
        raise UnknownColumns(f"{option}: no column {asked}; found {listed(known.values())}")
    return known[fold(asked)]
