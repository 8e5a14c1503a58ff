"""The tokenizer that transformers makes of a folder: what a served one must be equal to."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from transformers import (
    CONFIG_MAPPING,
    AutoTokenizer,
    PythonBackend,
    TokenizersBackend,
)
from transformers.models.auto.tokenization_auto import tokenizer_class_from_name

from models.errors import UnusableCheckpoint, in_one_line
from models.model_files import CONFIG, read_json
from serve.bundle.loader import TOKENIZER
from serve.errors import STOPS

TOKENIZER_CONFIG = "tokenizer_config.json"
# Nothing of a folder is run, and nothing is fetched.
LOCAL = {"trust_remote_code": False, "local_files_only": True}
# Read as JSON objects by transformers, which says of a damaged one neither name nor remedy.
_SETTINGS = (TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json")
# Settings that transformers takes from there without a look at their type.
_SWITCHES = {
    *("add_prefix_space", "do_lower_case", "keep_accents", "remove_space", "split_special_tokens"),
    *("strip_accents", "tokenize_chinese_chars", "trim_offsets"),
}


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
    _check_settings(folder, settings[TOKENIZER_CONFIG])
    known = str(config.get("model_type")) in CONFIG_MAPPING
    # The checks of transformers' configs are those of its models; a tokenizer needs none of them.
    options = {} if known or family not in CONFIG_MAPPING else {"config": _config(family, config)}
    tokenizer = _load(folder, options)
    if not isinstance(tokenizer, TokenizersBackend):
        raise _python_only(str(folder), type(tokenizer).__name__)
    return tokenizer


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
            return AutoTokenizer.from_pretrained(folder, **LOCAL, **options)
    except STOPS:
        raise
    except BaseException as error:  # from Python and from Rust, which may panic
        files = ", ".join(name for name in (*_SETTINGS, TOKENIZER) if (folder / name).is_file())
        raise UnusableCheckpoint(
            f"{folder}: transformers {transformers.__version__} makes no tokenizer of "
            f"{files or 'the vocabulary'}: {in_one_line(error)[:300]}"
        ) from None


def _check_settings(folder: Path, settings: dict[str, Any]) -> None:
    if settings.get("auto_map"):
        raise UnusableCheckpoint(
            f"{folder}/{TOKENIZER_CONFIG}: auto_map names code of the model's own, and none is "
            "run. Take auto_map out if transformers' own class gives the same ids"
        )
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
    """Refuse tokenizers in Python before their code runs."""
    where = f"{folder}/{file}"
    if not isinstance(name, str):
        raise UnusableCheckpoint(f"{where}: tokenizer_class is {name!r}; expected a class's name")
    found = tokenizer_class_from_name(name)
    if found in (None, PythonBackend):
        return
    if not (isinstance(found, type) and issubclass(found, TokenizersBackend)):
        raise _python_only(f"{where}: tokenizer_class", name)


def _python_only(where: str, name: str) -> UnusableCheckpoint:
    return UnusableCheckpoint(
        f"{where} {name} is a tokenizer in Python, which has no tokenizer.json: its ids cannot be "
        "served. Take a model with a fast tokenizer"
    )
