"""How many words one token of a tokenizer may hold."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import ByteLevel

from serve.tokenization.length_bounds import WORD

# None of these drops a letter, a digit or the space between two words.
_KEEP_WORDS = {
    *("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt"),
    *("Precompiled", "Prepend", "Strip", "StripAccents"),
}
# After one of these no token reaches from one word into the next.
_SPLIT_AT_SPACES = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
_SIGN_OF_SPACE = "\u2581"


def words_per_token(tokenizer: Tokenizer) -> int | None:
    """Return the most words that one token holds; None if some words may have no token at all.

    A piece of the vocabulary holds one word, or a part of it, where the text is split at spaces
    first. Added tokens are looked for before that, so one may hold several.
    """
    before = list(_parts(tokenizer.normalizer, "normalizers"))
    splits = list(_parts(tokenizer.pre_tokenizer, "pretokenizers"))
    if not (_keep_words(before, splits) and _split(splits) and _knows_all(tokenizer)):
        return None
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    normal = tokenizer.normalizer
    forms = [*added, *(normal.normalize_str(each) for each in added if normal)]
    return max(map(_num_words, forms), default=1)


def _num_words(content: str) -> int:
    """Count words as a text has them in which any of its spaces is an ordinary one."""
    return max(1, len(WORD.findall(" ".join(content.replace(_SIGN_OF_SPACE, " ").split()))))


def _keep_words(parts: list[Mapping[str, Any]], splits: list[Mapping[str, Any]]) -> bool:
    spaces = {" ", _SIGN_OF_SPACE} if any(_at_signs(each) for each in splits) else {" "}
    return all(
        part["type"] in _KEEP_WORDS or (part["type"] == "Replace" and _keeps(part, spaces))
        for part in parts
    )


def _keeps(replace: Mapping[str, Any], spaces: set[str]) -> bool:
    """Return whether signs or spaces alone are replaced, and spaces by a space."""
    pattern = replace["pattern"].get("String")
    if pattern is None:
        return replace["pattern"] == {"Regex": " {2,}"} and replace["content"] in spaces
    return not WORD.search(pattern) and (pattern.strip() == pattern or replace["content"] in spaces)


def _split(parts: list[Mapping[str, Any]]) -> bool:
    at_spaces = [
        part["type"] in _SPLIT_AT_SPACES
        or (part["type"] == "ByteLevel" and part["use_regex"])
        or _at_signs(part)
        for part in parts
    ]
    harmless = {*_SPLIT_AT_SPACES, "ByteLevel", "Digits", "Metaspace", "Punctuation"}
    return any(at_spaces) and all(
        part["type"] in harmless and part.get("behavior") != "Removed" for part in parts
    )


def _at_signs(part: Mapping[str, Any]) -> bool:
    return bool(
        part["type"] == "Metaspace" and part["split"] and part["replacement"] == _SIGN_OF_SPACE
    )


def _knows_all(tokenizer: Tokenizer) -> bool:
    """Return whether what is not in the vocabulary becomes a token too, or an error."""
    model = tokenizer.model
    if not isinstance(model, models.BPE) or model.unk_token is not None:
        return True
    return all(tokenizer.token_to_id(sign) is not None for sign in ByteLevel.alphabet())


def _parts(component: Any, within: str) -> Iterator[Mapping[str, Any]]:
    """Yield a component's settings, or those of the components of a sequence."""
    settings = None if component is None else json.loads(component.__getstate__())
    if settings and settings["type"] == "Sequence":
        yield from settings[within]
    elif settings:
        yield settings
