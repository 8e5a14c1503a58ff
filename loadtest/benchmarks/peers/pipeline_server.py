"""The transformers pipeline behind FastAPI: PyTorch, fp32, one text after the other."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import PreTrainedTokenizerFast, pipeline

from loadtest.benchmarks.last_head import LastHeadOnly
from models.multi_exit import MultiExitModel


class Question(BaseModel):
    """A text to classify, or several."""

    inputs: str | list[str]


torch.set_num_threads(1)
folder = os.environ["CHECKPOINT"]
ask = pipeline(
    "text-classification",
    model=LastHeadOnly(MultiExitModel.load(folder).eval()).eval(),
    tokenizer=PreTrainedTokenizerFast.from_pretrained(folder),
    device="cpu",
)
app, thread = FastAPI(), ThreadPoolExecutor(1)  # more would share the same core


@app.get("/health/ready")
async def ready() -> dict:
    """Say that the server answers."""
    return {"status": "ok"}


@app.post("/v1/classify")
def classify(question: Question) -> dict:
    """Answer a request."""
    texts = [question.inputs] if isinstance(question.inputs, str) else question.inputs
    return {"results": thread.submit(lambda: ask(texts, truncation=True)).result()}


if __name__ == "__main__":
    port = int(sys.argv[1])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)
