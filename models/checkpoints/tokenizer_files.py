"""A checkpoint's tokenizer, from any kind of files, as `tokenizer.json`.

Its ids are those of transformers' `AutoTokenizer`, which reads the settings beside the files too.
"""

import json
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer, processors
from transformers import BertTokenizer, TokenizersBackend

from models.checkpoints.auto_tokenizer import TOKENIZER_CONFIG, load_auto_tokenizer
from models.errors import UnusableCheckpoint, in_one_line
from models.model_files import CONFIG, read_json
from serve.bundle.loader import TOKENIZER
from serve.errors import STOPS
from serve.tokenization.growth import growth_problem

_VOCABULARY = "vocab.txt"
# UER's code uses these fixed ids.
_UER_IDS = {"[UNK]": 100, "[CLS]": 101, "[SEP]": 102}


class ReadTokenizer(NamedTuple):
    """A checkpoint's tokenizer.

    Attributes:
        content: the `tokenizers` library's JSON.
        files: names of the files that it was made from.
    """

    content: str
    files: str


def read_tokenizer(folder: Path, checkpoint_format: str, family: str) -> ReadTokenizer:
    """Return the tokenizer whose ids are those of `AutoTokenizer`, or of the format's own code.

    Raises:
        UnusableCheckpoint: there is no tokenizer, or no `tokenizer.json` can give the same ids.
    """
    if checkpoint_format == "FastBERT":
        return ReadTokenizer(_fastbert(folder), "vocab.txt, as FastBERT encodes")
    stated = read_json(folder, TOKENIZER)
    _check_growth(folder, stated)
    if checkpoint_format == "Offramp" and stated:
        return ReadTokenizer(_json(stated), TOKENIZER)  # what its training used
    tokenizer = load_auto_tokenizer(folder, family)
    files = _files(folder, tokenizer)
    served = _served(tokenizer)
    _check_settings(folder, tokenizer)
    _check_kind(folder, tokenizer, stated, served)
    return ReadTokenizer(_json(served), " and ".join(files))


def check_embeddings(tokenizer: ReadTokenizer, rows: int, folder: Path) -> None:
    """Refuse tokens that a model has no embedding for, by the name of the first.

    Raises:
        UnusableCheckpoint: there are such, or the library cannot read the tokenizer.
    """
    where = f"{folder}: the tokenizer in {tokenizer.files}"
    try:
        vocabulary = Tokenizer.from_str(tokenizer.content).get_vocab()
    except STOPS:
        raise
    except BaseException as error:  # from Rust, which may panic
        raise UnusableCheckpoint(f"{where} cannot be read: {in_one_line(error)}") from None
    beyond = sorted((i, token) for token, i in vocabulary.items() if i >= rows)
    if beyond:
        more = f" (and {len(beyond) - 1} more beyond it)" if beyond[1:] else ""
        raise UnusableCheckpoint(
            f"{where} has the token {beyond[0][1]!r} with id {beyond[0][0]}{more}, and the model "
            f"has embeddings for ids up to {rows - 1} only. Enlarge them with "
            "resize_token_embeddings, or take the token out of the tokenizer's files; a default "
            f'such as [MASK] goes by "mask_token": null in {TOKENIZER_CONFIG}'
        )


def check_around(content: str, unplaced_id: int | None, folder: Path) -> None:
    """Refuse a model that counts no position for a token that is around every text.

    Args:
        content: of a `tokenizer.json`.
        unplaced_id: of the model's backbone.
        folder: the model's.

    Raises:
        UnusableCheckpoint: it does.
    """
    around = Tokenizer.from_str(content).encode("")
    if unplaced_id in around.ids:
        raise UnusableCheckpoint(
            f"{folder}/{CONFIG}: the padding's id is {unplaced_id}, and "
            f"{around.tokens[around.ids.index(unplaced_id)]!r} with this id is in every text: "
            "transformers counts no position for it, which is not supported. Write the id of the "
            "tokenizer's padding token as pad_token_id, if the model was trained with that"
        )


def _check_growth(folder: Path, stated: dict[str, Any]) -> None:
    """Refuse a normalizer that would fill the memory, before any text goes through it."""
    try:
        problem = growth_problem(stated.get("normalizer"))
    except (AttributeError, KeyError, TypeError, ValueError):
        return  # the library says what is wrong
    if problem:
        raise UnusableCheckpoint(f"{folder / TOKENIZER} is refused: {problem}")


def _check_settings(folder: Path, tokenizer: TokenizersBackend) -> None:
    """Refuse settings that no bundle can hold."""
    if tokenizer.truncation_side != "right":
        stated = "truncation_side" in read_json(folder, TOKENIZER_CONFIG)
        where = f"{TOKENIZER_CONFIG}: truncation_side" if stated else f"{TOKENIZER}: truncation"
        raise UnusableCheckpoint(
            f"{folder}/{where} is {tokenizer.truncation_side}, and texts that are too long are cut "
            "at their end only. Set it to right if the model may see their beginning instead"
        )
    if tokenizer.split_special_tokens:
        raise UnusableCheckpoint(
            f"{folder}/{TOKENIZER_CONFIG}: split_special_tokens is true, which no {TOKENIZER} can "
            "hold. Set it to false if a special token's name in a text may become that token"
        )


def _check_kind(
    folder: Path, tokenizer: TokenizersBackend, stated: dict[str, Any], served: dict[str, Any]
) -> None:
    """Refuse a `tokenizer.json` of which transformers makes another kind.

    It goes by the family, or by a class name that may be wrong.
    """
    found, made = (each.get("model", {}).get("type") for each in (stated, served))
    if found not in (None, made):
        raise UnusableCheckpoint(
            f"{folder}/{TOKENIZER} is a {found} tokenizer, and transformers makes a {made} of it, "
            f'as {type(tokenizer).__name__}. Write "tokenizer_class": "PreTrainedTokenizerFast" '
            f"into {TOKENIZER_CONFIG} if {TOKENIZER} is right"
        )


def _json(document: dict[str, Any]) -> str:
    """Return a `tokenizer.json` without padding and truncation, which are settings of a call."""
    return json.dumps({**document, "truncation": None, "padding": None}, ensure_ascii=False)


def _files(folder: Path, tokenizer: TokenizersBackend) -> list[str]:
    """Return the names of the files that transformers read the vocabulary from."""
    if (folder / TOKENIZER).is_file():
        return [TOKENIZER]
    kind = type(tokenizer)
    names = [name for name in kind.vocab_files_names.values() if name != TOKENIZER]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        needed = " or ".join([TOKENIZER, *([" and ".join(names)] if names else [])])
        raise UnusableCheckpoint(
            f"{folder} holds no tokenizer: a {kind.__name__} needs {needed}. If the files are "
            f"another class's, such as {_VOCABULARY} of BertTokenizer, name it as tokenizer_class "
            f"in {TOKENIZER_CONFIG}"
        )
    if (folder / names[0]).read_bytes().startswith(BOM_UTF8):
        raise UnusableCheckpoint(
            f"{folder}/{names[0]} begins with a byte order mark, which would be a part of its "
            "first token; save it as UTF-8 without one"
        )
    return names


def _served(tokenizer: TokenizersBackend) -> dict[str, Any]:
    """Return transformers' tokenizer as JSON, with the types that its model gets."""
    document: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    if "token_type_ids" not in tokenizer.model_input_names:
        document["post_processor"] = _without_types(document["post_processor"])
    return document


def _without_types(part: Any) -> Any:
    """Return a part of a post-processor with all types 0."""
    if isinstance(part, list):
        return [_without_types(each) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "BertProcessing":
        ends = (part["cls"][0], part["sep"][0])
        template = "{0}:0 $A:0 {1}:0", "{0}:0 $A:0 {1}:0 $B:0 {1}:0"
        made = processors.TemplateProcessing(
            single=template[0].format(*ends),
            pair=template[1].format(*ends),
            special_tokens=[tuple(part["cls"]), tuple(part["sep"])],
        )
        return json.loads(made.__getstate__())
    return {k: 0 if k == "type_id" else _without_types(v) for k, v in part.items()}


def _fastbert(folder: Path) -> str:
    """Return FastBERT's tokenizer: `[CLS] a` in segment 1; `[CLS] a [SEP] b [SEP]` in 1 and 2."""
    path = folder / _VOCABULARY
    if not path.is_file():
        raise UnusableCheckpoint(f"{folder} holds no tokenizer: expected {_VOCABULARY}")
    lowercase = bool(read_json(folder, TOKENIZER_CONFIG).get("do_lower_case", True))
    tokenizer = BertTokenizer(vocab=str(path), do_lower_case=lowercase).backend_tokenizer
    vocabulary = tokenizer.get_vocab()
    wrong = [name for name, i in _UER_IDS.items() if vocabulary.get(name) != i]
    if wrong:
        raise UnusableCheckpoint(
            f"{folder}/{_VOCABULARY}: FastBERT's code takes {wrong[0]} to have id "
            f"{_UER_IDS[wrong[0]]}, but here it is {vocabulary.get(wrong[0])}: is it the model's?"
        )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:1 $A:1",
        pair="[CLS]:1 $A:1 [SEP]:1 $B:2 [SEP]:2",
        special_tokens=[(name, _UER_IDS[name]) for name in ("[CLS]", "[SEP]")],
    )
    return str(tokenizer.to_str())
