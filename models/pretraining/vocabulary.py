"""How words are masked with an encoder's tokenizer."""

from pathlib import Path

from models.checkpoints.auto_tokenizer import load_auto_tokenizer, quiet
from models.errors import TrainingFailed
from models.pretraining.masking import Masking

# Names of the mask token, where no setting of the folder tells it.
_KNOWN_MASKS = ("[MASK]", "<mask>")


def masking_of(folder: Path, family: str, num_embeddings: int) -> Masking:
    """Return how tokens of an encoder are masked.

    Args:
        folder: the encoder's, whose tokenizer has been read once.
        family: transformers' model type.
        num_embeddings: tokens that the encoder has embeddings for.

    Raises:
        TrainingFailed: the tokenizer has no mask token.
    """
    with quiet():
        tokenizer = load_auto_tokenizer(folder, family)
    vocabulary = tokenizer.get_vocab()
    names = (tokenizer.mask_token, *_KNOWN_MASKS)
    mask_id = next((vocabulary[str(name)] for name in names if str(name) in vocabulary), None)
    if mask_id is None or mask_id >= num_embeddings:
        raise TrainingFailed(
            f"{folder}: the tokenizer has no mask token, such as [MASK], with an embedding, so "
            "that no word can be hidden; take an encoder that was pretrained with masked words"
        )
    marked = (i for i, token in tokenizer.added_tokens_decoder.items() if token.special)
    special = tuple(sorted({mask_id, *tokenizer.all_special_ids, *marked}))
    return Masking(mask_id, special, min(len(vocabulary), num_embeddings))
