"""Masked words: which tokens of a batch are hidden, for exits to find (Devlin et al. 2019)."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from models.checkpoints.auto_tokenizer import load_auto_tokenizer, quiet
from models.data.batches import Batch
from models.errors import TrainingFailed

# Names of the mask token, where no setting of the folder tells it.
_KNOWN_MASKS = ("[MASK]", "<mask>")
MASK_SHARE = 0.15  # of the tokens, as BERT
# Of the chosen tokens, these shares are shown as the mask and as any token; the rest as they are.
AS_MASK, AS_ANY = 0.8, 0.1


class MaskedBatch(NamedTuple):
    """A batch of which some tokens are to be found.

    Attributes:
        batch: what the encoder sees.
        chosen: (rows, tokens), True where a token is to be found.
        targets: (chosen,), those tokens' ids, row by row.
    """

    batch: Batch
    chosen: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> "MaskedBatch":
        """Return it on a device."""
        return MaskedBatch(self.batch.to(device), self.chosen.to(device), self.targets.to(device))


@dataclass(frozen=True)
class Masking:
    """How tokens are chosen and hidden.

    Attributes:
        mask_id: id of the mask token.
        special_ids: ids that are never chosen.
        num_tokens: ids below it replace a token by any.
        share: of all other tokens, that are chosen.
    """

    mask_id: int
    special_ids: tuple[int, ...]
    num_tokens: int
    share: float = MASK_SHARE

    def __call__(self, batch: Batch, generator: torch.Generator | None = None) -> MaskedBatch:
        """Choose tokens and hide them; PyTorch's own generator draws if none is given."""
        ids = batch.input_ids

        def draw() -> Tensor:
            return torch.rand(ids.shape, generator=generator, device=ids.device)

        special = torch.isin(ids, torch.tensor(self.special_ids, device=ids.device))
        chosen = batch.attention_mask.bool() & ~special & (draw() < self.share)
        fate = draw()
        any_id = torch.randint(self.num_tokens, ids.shape, generator=generator, device=ids.device)
        shown = torch.where(chosen & (fate < AS_MASK), self.mask_id, ids)
        shown = torch.where(chosen & (fate >= 1 - AS_ANY), any_id, shown)
        return MaskedBatch(batch._replace(input_ids=shown), chosen, ids[chosen])


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
