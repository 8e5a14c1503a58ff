"""The common part of the other contenders: a small FastAPI app under uvicorn."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

# Returns the label of one text and the label's probability.
Classify: TypeAlias = Callable[[str], Awaitable[tuple[str, float]]]


class Question(BaseModel):
    """A text to classify, or several."""

    inputs: str | list[str]


class Result(BaseModel):
    """A label and its probability."""

    label: str
    score: float


class Reply(BaseModel):
    """The part of Offramp's reply that a model without early exit has."""

    results: list[Result]


def server_options(module: str, *files: str) -> argparse.Namespace:
    """Read the command line of a contender's module: files, `--port` and `--threads`."""
    parser = argparse.ArgumentParser(prog=f"python -m loadtest.compare.{module}")
    for name in files:
        parser.add_argument(name, type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    return parser.parse_args()


def serve(classify: Classify, port: int) -> None:
    """Serve one model on 127.0.0.1 until SIGTERM."""
    app = FastAPI()

    @app.get("/health/ready")
    async def ready() -> dict[str, Any]:
        return {"status": "ok"}

    @app.post("/v1/classify")
    async def answer(question: Question) -> Reply:
        if isinstance(question.inputs, str):
            found = [await classify(question.inputs)]
        else:
            found = await asyncio.gather(*map(classify, question.inputs))
        return Reply(results=[Result(label=label, score=score) for label, score in found])

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)
