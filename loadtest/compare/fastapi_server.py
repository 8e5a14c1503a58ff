"""What the other contenders have in common: a small FastAPI app under uvicorn."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

Classify: TypeAlias = Callable[[str], Awaitable[tuple[str, float]]]


class Question(BaseModel):
    """A text to classify."""

    inputs: str


class Result(BaseModel):
    """Its label, with the label's probability."""

    label: str
    score: float


class Reply(BaseModel):
    """As much of Offramp's reply as a model without early exit has to say."""

    results: list[Result]


def serve(classify: Classify, port: int) -> None:
    """Serve one model on the loopback device until SIGTERM."""
    app = FastAPI()

    @app.get("/health/ready")
    async def ready() -> dict[str, Any]:
        return {"status": "ok"}

    @app.post("/v1/classify")
    async def answer(question: Question) -> Reply:
        label, score = await classify(question.inputs)
        return Reply(results=[Result(label=label, score=score)])

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)
