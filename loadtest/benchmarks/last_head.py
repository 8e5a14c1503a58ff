"""The model of the transformers pipeline: a multi-exit model without its earlier heads."""

from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from models.multi_exit import MultiExitModel


class LastHeadOnly(PreTrainedModel):
    """The encoder as transformers runs it, and the last exit head."""

    _supports_sdpa = True

    def __init__(self, model: MultiExitModel) -> None:
        encoder = model.backbone.encoder
        super().__init__(encoder.config)
        self.encoder = encoder
        self.head = model.heads[-1]
        self.encoder.set_attn_implementation("sdpa")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, **inputs: Any
    ) -> SequenceClassifierOutput:
        """Return (rows, labels) logits; called as pipelines call their models."""
        hidden = self.encoder(input_ids, attention_mask=attention_mask, **inputs)[0]
        return SequenceClassifierOutput(logits=self.head(hidden, attention_mask))
