"""A tokenizer that reads special tokens in a text as the characters that they are written with."""

import re
from collections.abc import Collection

from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import Sequence, Split


def plain(tokenizer: Tokenizer, special: Collection[str]) -> Tokenizer:
    """Return a tokenizer over the same model that finds none of these tokens in a text.

    The library's `encode_special_tokens` alone does not do it: a model whose vocabulary has them,
    as Unigram's has, would find them as a piece or a word. So those that reach the model whole are
    split after their first character. Offsets, and what is put around texts, stay.
    """
    copy = Tokenizer(tokenizer.model)
    copy.normalizer, copy.post_processor = tokenizer.normalizer, tokenizer.post_processor
    for _, token in sorted(tokenizer.get_added_tokens_decoder().items()):  # by id: ids stay
        is_special = token.special or token.content in special
        (copy.add_special_tokens if is_special else copy.add_tokens)([token])
    copy.encode_special_tokens = True
    steps = [tokenizer.pre_tokenizer] if tokenizer.pre_tokenizer else []
    whole = [each for each in sorted(special) if len(each) > 1 and _reaches_model(tokenizer, each)]
    if whole:
        heads = (f"{re.escape(each[0])}(?={re.escape(each[1:])})" for each in whole)
        steps.append(Split(Regex("|".join(heads)), "isolated"))
    if steps:
        copy.pre_tokenizer = Sequence(steps)
    return copy


def _reaches_model(tokenizer: Tokenizer, token: str) -> bool:
    """Return whether words are not split within the token, as BERT's are at its brackets."""
    if tokenizer.pre_tokenizer is None:
        return True
    probes = (token, f"a{token}a", f"<{token}>")
    pieces = (tokenizer.pre_tokenizer.pre_tokenize_str(probe) for probe in probes)
    return any(token in piece for of_probe in pieces for piece, _ in of_probe)
