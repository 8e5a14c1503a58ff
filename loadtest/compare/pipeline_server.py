"""A contender: the transformers pipeline under FastAPI, one text after the other.

`python -m loadtest.compare.pipeline_server MODEL --port N --threads N`. The model is the same
checkpoint with its last head alone: PyTorch, fp32, fused attention, the fast tokenizer.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast, pipeline
from transformers.modeling_outputs import SequenceClassifierOutput

from loadtest.compare.fastapi_server import serve, server_options
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


def main() -> None:
    """Serve until SIGTERM."""
    options = server_options("pipeline_server", "model")
    torch.set_num_threads(options.threads)
    model = LastHeadOnly(MultiExitModel.load(options.model).eval()).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(options.model)
    ask = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    # One text at a time; more threads would share the same cores.
    thread = ThreadPoolExecutor(1)

    async def classify(text: str) -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        (found,) = await loop.run_in_executor(thread, lambda: ask(text, truncation=True))
        return found["label"], found["score"]

    serve(classify, options.port)


if __name__ == "__main__":
    main()
