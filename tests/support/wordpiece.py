"""WordPiece tokenizers over a few words."""

from collections.abc import Sequence

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def wordpiece(words: Sequence[str]) -> Tokenizer:
    """Return a tokenizer of the special tokens, with ids 0 to 3, and the words."""
    vocabulary = {word: i for i, word in enumerate((*SPECIAL, *words))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer
