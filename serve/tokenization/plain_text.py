"""A tokenizer that reads special tokens in a text as the characters that they are written with."""

import re
from collections.abc import Collection

from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import Sequence, Split


def plain(tokenizer: Tokenizer, special: Collection[str]) -> Tokenizer:
    """Return a tokenizer over the same model that finds none of these tokens in a text.

    The library's `encode_special_tokens` alone does not do it: a model whose vocabulary has them,
    as Unigram's has, would find them as a piece or a word. So they are split after their first
    character, once the text is normalized. Offsets, and what is put around texts, stay.
    """
    copy = Tokenizer(tokenizer.model)
    copy.normalizer, copy.post_processor = tokenizer.normalizer, tokenizer.post_processor
    for _, token in sorted(tokenizer.get_added_tokens_decoder().items()):  # by id: ids stay
        is_special = token.special or token.content in special
        (copy.add_special_tokens if is_special else copy.add_tokens)([token])
    copy.encode_special_tokens = True
    heads = [f"{re.escape(t[0])}(?={re.escape(t[1:])})" for t in sorted(special) if len(t) > 1]
    steps = [tokenizer.pre_tokenizer] if tokenizer.pre_tokenizer else []
    if heads:
        steps.append(Split(Regex("|".join(heads)), "isolated"))
    if steps:
        copy.pre_tokenizer = Sequence(steps)
    return copy
