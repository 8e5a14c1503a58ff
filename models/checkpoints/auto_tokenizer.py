"""The tokenizer that transformers makes of a folder: what a served one must be equal to."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import transformers
from transformers import (
    CONFIG_MAPPING,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    PythonBackend,
    TokenizersBackend,
)
from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

from models.errors import UnusableCheckpoint, in_one_line
from models.model_files import CONFIG, read_json
from serve.bundle.loader import TOKENIZER
from serve.errors import STOPS
from serve.tokenization.tokenizer import Text

TOKENIZER_CONFIG = "tokenizer_config.json"
# Read as JSON objects by transformers, which says of a damaged one neither name nor remedy.
_SETTINGS = (TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json")
# Settings that transformers takes from there without a look at their type.
_SWITCHES = {
    *("add_prefix_space", "do_lower_case", "keep_accents", "remove_space", "split_special_tokens"),
    *("strip_accents", "tokenize_chinese_chars", "trim_offsets"),
}


class TokenIds(NamedTuple):
    """One tokenized input, special tokens included, as the model gets it."""

    ids: list[int]
    types: list[int]


def load_auto_tokenizer(folder: Path, family: str) -> TokenizersBackend:
    """Return what `AutoTokenizer.from_pretrained` makes of a folder, without running its code.

    Args:
        folder: a model folder that `check_files` has seen.
        family: transformers' model type, for folders whose config names none that it knows.

    Raises:
        UnusableCheckpoint: transformers makes none, or one that runs in Python only.
    """
    settings = {name: read_json(folder, name) for name in _SETTINGS}
    config = read_json(folder, CONFIG)
    for file, stated in ((TOKENIZER_CONFIG, settings[TOKENIZER_CONFIG]), (CONFIG, config)):
        if stated.get("tokenizer_class") is not None:
            _check_class(folder, file, stated["tokenizer_class"])
            break
    _check_switches(folder, settings[TOKENIZER_CONFIG])
    known = str(config.get("model_type")) in CONFIG_MAPPING
    # The checks of transformers' configs are those of its models; a tokenizer needs none of them.
    options = {} if known or family not in CONFIG_MAPPING else {"config": _config(family, config)}
    tokenizer = _load(folder, options)
    if not isinstance(tokenizer, TokenizersBackend):
        raise _python_only(str(folder), type(tokenizer).__name__)
    return tokenizer


def reference_ids(
    tokenizer: PreTrainedTokenizerBase, inputs: Sequence[Text], max_tokens: int | None = None
) -> list[TokenIds]:
    """Return the ids that transformers gives to texts and pairs, and the types that a model gets.

    Types are 0 where the tokenizer's `model_input_names` leave them out.

    Args:
        tokenizer: from `load_auto_tokenizer`.
        inputs: texts and pairs.
        max_tokens: longer inputs are cut; None: none is cut.
    """
    cut = {} if max_tokens is None else {"truncation": True, "max_length": max_tokens}
    rows = (tokenizer(text, pair, verbose=False, **cut) for text, pair in inputs)
    return [
        TokenIds(row["input_ids"], row.get("token_type_ids") or [0] * len(row["input_ids"]))
        for row in rows
    ]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from writing to the log meanwhile."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)


def _load(folder: Path, options: dict[str, Any]) -> Any:
    try:
        with quiet():
            return AutoTokenizer.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True, **options
            )
    except STOPS:
        raise
    except BaseException as error:  # from Python and from Rust, which may panic
        files = ", ".join(name for name in (*_SETTINGS, TOKENIZER) if (folder / name).is_file())
        raise UnusableCheckpoint(
            f"{folder}: transformers {transformers.__version__} makes no tokenizer of "
            f"{files or 'the vocabulary'}: {in_one_line(error)[:300]}"
        ) from None


def _check_switches(folder: Path, settings: dict[str, Any]) -> None:
    for name in _SWITCHES & settings.keys():
        if not isinstance(settings[name], bool) and settings[name] is not None:
            raise UnusableCheckpoint(
                f"{folder}/{TOKENIZER_CONFIG}: {name} is {settings[name]!r}; expected true or false"
            )


def _config(family: str, stated: dict[str, Any]) -> Any:
    config = CONFIG_MAPPING[family]()
    config.tokenizer_class = stated.get("tokenizer_class")
    return config


def _check_class(folder: Path, file: str, name: Any) -> None:
    """Refuse what needs a `tokenizer.json`, and tokenizers in Python before their code runs."""
    where = f"{folder}/{file}"
    if not isinstance(name, str):
        raise UnusableCheckpoint(f"{where}: tokenizer_class is {name!r}; expected a class's name")
    found = tokenizer_class_from_name(name)
    if found in (None, TokenizersBackend, PythonBackend):
        if not (folder / TOKENIZER).is_file():
            raise UnusableCheckpoint(
                f"{where}: a tokenizer_class {name} needs {TOKENIZER}, and there is none. Name the "
                "class whose files these are, such as BertTokenizer for vocab.txt"
            )
        return
    if not (isinstance(found, type) and issubclass(found, PreTrainedTokenizerBase)):
        raise UnusableCheckpoint(f"{where}: tokenizer_class {name} is no tokenizer")
    if not issubclass(found, TokenizersBackend):
        raise _python_only(f"{where}: tokenizer_class", name)


def _python_only(where: str, name: str) -> UnusableCheckpoint:
    return UnusableCheckpoint(
        f"{where} {name} is a tokenizer in Python, which has no tokenizer.json: its ids cannot be "
        "served. Take a model with a fast tokenizer"
    )
