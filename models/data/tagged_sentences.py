"""Tagged sentences: CoNLL files (token, tab, tag; a blank line ends a sentence) or JSON lines."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from models.data.columns import KNOWN, TAGS, TEXT_NAMES, TOKENS, Columns, fold
from models.data.conll import has_entity_tags, read_conll
from models.data.records import Record, read_records
from models.data.unread import Unread
from models.errors import UnusableData
from serve.rules.traits import listed

CONLL = (".conll", ".bio", ".iob", ".iob2")
_MAYBE_CONLL = (".tsv", ".txt")
_JSON = (".jsonl", ".ndjson", ".json")


class TaggedSentence(NamedTuple):
    """One sentence.

    Attributes:
        lines: line number of each word in the file.
        words: the words.
        tags: one per word, as in the file: names or ids.
    """

    lines: tuple[int, ...]
    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_sentences(path: Path, columns: Columns = KNOWN) -> list[TaggedSentence]:
    """Read tagged sentences; the suffix decides the format.

    `.jsonl` and `.json` hold one object with `tokens` and `tags` per line. All other files have
    one token per line, as `models.data.conll` reads them.

    Args:
        path: the file.
        columns: names of `tokens` and `tags` in JSON that the user gives.

    Raises:
        UnusableData: an unreadable file, a malformed line, or no sentences.
    """
    if path.suffix.lower() in _JSON:
        unread = Unread(path)
        sentences = [_read_json(record, columns, unread) for record in read_records(path)]
        unread.tell(labelled=True)
    elif columns != KNOWN:
        raise UnusableData(
            f"{path}: --text-columns and --label-column are for columns with names; of a token and "
            "its tag in a line, the first column is the token and the last one the tag"
        )
    elif path.suffix.lower() in (*CONLL, *_MAYBE_CONLL):
        sentences = [TaggedSentence(*zip(*words, strict=True)) for words in read_conll(path)]
    else:
        next(read_records(path), None)  # says what is wrong with other files
        raise UnusableData(
            f"{path}: tagged tokens are read from {listed([*CONLL, *_MAYBE_CONLL, *_JSON])}"
        )
    if not sentences:
        raise UnusableData(f"{path}: the file has no sentences")
    return sentences


def read_words(path: Path, columns: Columns = KNOWN) -> Iterator[tuple[str, ...]]:
    """Yield the words of each sentence; JSON needs no tags. Otherwise as `read_sentences`."""
    if path.suffix.lower() in _JSON:
        return (_read_tokens(record, columns) for record in read_records(path))
    return (sentence.words for sentence in read_sentences(path, columns))


def is_tagged(path: Path) -> bool:
    """Return whether a file's form shows tagged tokens.

    So do the suffix, a header, a tag of an entity at the end of every line, and a list of tokens
    with tags in JSON.
    """
    suffix = path.suffix.lower()
    if suffix in _JSON:
        values = _first_values(path)
        return not _lists(values).isdisjoint(TOKENS) and not values.keys().isdisjoint(TAGS)
    return suffix in CONLL or (suffix in _MAYBE_CONLL and has_entity_tags(path))


def has_words(path: Path, columns: Columns = KNOWN) -> bool:
    """Return whether a file's texts are to be joined from words: tagged tokens, or lists in JSON.

    A column of texts is read in their place, unless there are tags too. A column that the user
    names decides.
    """
    if path.suffix.lower() not in _JSON:
        return is_tagged(path)
    values = _first_values(path)
    lists = _lists(values)
    if columns.texts:
        return len(columns.texts) == 1 and fold(columns.texts[0]) in lists
    texts = {name for name in TEXT_NAMES if isinstance(values.get(name), str)}
    return is_tagged(path) or (not texts and not lists.isdisjoint(TOKENS))


def _first_values(path: Path) -> dict[str, object]:
    """Return the first record of JSON lines, by names as they are compared."""
    first = next(read_records(path), None)
    return {fold(name): value for name, value in first.values.items()} if first else {}


def _lists(values: Mapping[str, object]) -> set[str]:
    return {name for name, value in values.items() if isinstance(value, list)}


def _read_json(record: Record, columns: Columns, unread: Unread) -> TaggedSentence:
    words = _read_tokens(record, columns)
    of_words, _ = _listed(record, columns.texts[:1] or TOKENS)
    of_tags, found = _listed(record, (columns.label,) if columns.label else TAGS)
    others = [name for name in record.values if name not in (of_words, of_tags)]
    unread.see(record.values, others, None)
    names = [tag for tag in found if isinstance(tag, str | int) and not isinstance(tag, bool)]
    tags = tuple(str(tag).strip() for tag in names)
    if len(tags) < len(found) or "" in tags:
        raise record.unusable("a tag is no name and no whole number")
    if len(words) != len(tags):
        raise record.unusable(f"{len(words)} tokens have {len(tags)} tags; each needs one")
    return TaggedSentence((record.line,) * len(words), words, tags)


def _read_tokens(record: Record, columns: Columns) -> tuple[str, ...]:
    _, words = _listed(record, columns.texts[:1] or TOKENS)
    for index, word in enumerate(words):
        if not isinstance(word, str):
            raise record.unusable(f"token {index} is {word!r:.40}, and no text")
        if not word.strip():
            raise record.unusable(f"token {index} is empty")
    return tuple(map(str, words))


def _listed(record: Record, wanted: Sequence[str]) -> tuple[str, list[object]]:
    """Return the first of these columns that holds a list, and the list."""
    names = {fold(name): name for name in record.values}
    for name in map(fold, wanted):
        found = record.values[names[name]] if name in names else None
        if isinstance(found, list) and found:
            return names[name], found
    if empty := [name for name in wanted if record.values.get(names.get(fold(name), "")) == []]:
        raise record.unusable(f"{empty[0]} is an empty list; leave such rows out")
    raise record.unusable(
        f"expected a list of {wanted[0]}, as in "
        '{"tokens": ["Rome", "sleeps"], "tags": ["B-location", "O"]}; '
        f"found {listed(record.values)}"
    )
