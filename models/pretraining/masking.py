"""Masked words: which tokens of a batch are hidden, for exits to find (Devlin et al. 2019)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from models.data.batches import Batch

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
