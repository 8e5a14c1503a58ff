"""Texts on which tokenizers and models differ, unless they mean the same."""

from collections.abc import Sequence

from serve.tokenization.tokenizer import Text

_TEXTS = (
    "The Quick brown FOX paid 3.50 EUR, didn't it?",
    "Ça alors ! Élodie était DÉÇUE par la crème brûlée à Zürich.",
    "Cafe\u0301 nai\u0308ve A\u030angstro\u0308m",  # accents as characters of their own
    "日本語の文 and 中文字 beside 한국어, русский язык, ελληνικά, עברית",
    " Two  spaces,\ta tab,\na line\u00a0and a hard space ",
    "\U0001f642\U0001f642 e-mail a.b@example.org/x?y=1 #tag @name don't",
    "İstanbul, Straße, ﬁne, Ⅳ, ½, “quotes” and… dots",
    "unaffordable antidisestablishmentarianism xqzt 1234567890",
)
_PAIRS = (
    ("A Dog runs through the snow.", "Un animal Bouge vite, là-bas."),
    ("Who wrote it?", "?"),
)
# A model that takes more is compared on as many.
_MOST_TOKENS = 8192
_TOKENS_PER_TEXT = 8


def texts(max_tokens: int, pairs: bool) -> list[Text]:
    """Return texts of mixed case, with accents, in several scripts, and too long for the model.

    Args:
        max_tokens: the longest input of the model.
        pairs: whether the model takes pairs of texts.
    """
    long = " ".join(f"Sentence {i} goes On." for i in range(min(max_tokens, _MOST_TOKENS) // 4 + 1))
    found = [Text(each) for each in (*_TEXTS, long)]
    if pairs:
        found += [Text(*each) for each in (*_PAIRS, (long, "A Short one."), ("A Short one.", long))]
    return found


def texts_with(added: Sequence[str]) -> list[Text]:
    """Return texts with these added tokens in them, each alone and right after a word."""
    parts = [added[i : i + _TOKENS_PER_TEXT] for i in range(0, len(added), _TOKENS_PER_TEXT)]
    return [Text(" ".join(f"see {token} here{token}and" for token in part)) for part in parts]
