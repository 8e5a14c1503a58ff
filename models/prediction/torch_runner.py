"""A model in PyTorch behind the interface by which the server's engine runs segments."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from models.multi_exit import MultiExitModel
from serve.engine.runner import Ids, StepOutput


class TorchRunner:
    """A `serve.engine.runner.ModelRunner` over a model in evaluation mode, on the CPU."""

    def __init__(self, model: MultiExitModel) -> None:
        self._model = model.eval()

    def __len__(self) -> int:
        return len(self._model.exits)

    def start(
        self, input_ids: Ids, attention_mask: Ids, token_type_ids: Ids, until: int = 0
    ) -> StepOutput:
        ids, mask, types = map(torch.from_numpy, (input_ids, attention_mask, token_type_ids))
        with torch.inference_mode():
            return self._run(self._model.backbone.embed(ids, types, mask), mask, 0, until)

    def advance(
        self,
        index: int,
        hidden: Tensor,
        keep: NDArray[np.int64],
        attention_mask: Ids,
        until: int | None = None,
    ) -> StepOutput:
        kept = hidden[torch.from_numpy(keep), : attention_mask.shape[1]]
        with torch.inference_mode():
            mask = torch.from_numpy(attention_mask)
            done = self._model.exits[index - 1]
            return self._run(kept, mask, done, index if until is None else until)

    def join(self, parts: Sequence[tuple[Tensor, NDArray[np.int64], int]]) -> Tensor:
        longest = max(tokens for _, _, tokens in parts)
        taken = (hidden[torch.from_numpy(keep), :tokens] for hidden, keep, tokens in parts)
        return torch.cat([pad(each, (0, 0, 0, longest - each.shape[1])) for each in taken])

    def _run(self, hidden: Tensor, mask: Tensor, start: int, until: int) -> StepOutput:
        model = self._model
        hidden = model.run_layers(hidden, mask, start, model.exits[until])
        logits, uncertainty = model.head(until).output(model.backbone.head_input(hidden), mask)
        return StepOutput(
            hidden, logits.numpy(), None if uncertainty is None else uncertainty.numpy()
        )
