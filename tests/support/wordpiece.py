"""WordPiece tokenizers over a few words."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
# A tokenizer_config.json that changes nothing of the tokenizer.json beside it.
TAKEN_AS_IT_IS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
}
MPNET_SPECIAL = ("<s>", "<pad>", "</s>", "[UNK]")


def wordpiece(words: Sequence[str]) -> Tokenizer:
    """Return a tokenizer of the special tokens, with ids 0 to 3, and the words."""
    tokenizer = _of((*SPECIAL, *words))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def mpnet_wordpiece(words: Sequence[str]) -> Tokenizer:
    """Return MPNet's form: padding has id 1, and a pair is `<s> a </s></s> b </s>`."""
    tokenizer = _of((*MPNET_SPECIAL, *words))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write a tokenizer that transformers takes as it is, whatever the family of the model."""
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(TAKEN_AS_IT_IS))


def _of(vocabulary: Sequence[str]) -> Tokenizer:
    ids = {word: i for i, word in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([word for word in vocabulary if word[0] in "[<"])
    return tokenizer
