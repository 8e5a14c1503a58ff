"""The whole model in ONNX Runtime behind FastAPI, with the dynamic batching that it lacks."""

import asyncio
import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from whole_model import MAX_ROWS, WAIT_S, WholeModel


class Question(BaseModel):
    """A text to classify, or several."""

    inputs: str | list[str]


app = FastAPI()
waiting: asyncio.Queue[tuple[str | list[str], asyncio.Future[dict]]] = asyncio.Queue()
working = set()


@app.get("/health/ready")
async def ready() -> dict:
    """Say that the server answers."""
    return {"status": "ok"}


@app.post("/v1/classify")
async def classify(question: Question) -> dict:
    """Answer a request with others in one batch."""
    if not working:
        working.add(asyncio.create_task(work()))
    answer: asyncio.Future[dict] = asyncio.get_running_loop().create_future()
    waiting.put_nowait((question.inputs, answer))
    return await answer


async def work() -> None:
    """Gather requests while the model works; run batches one after the other, in a thread."""
    while True:
        batch = [await waiting.get()]
        if waiting.empty():
            await asyncio.sleep(WAIT_S)
        while not waiting.empty() and len(batch) < MAX_ROWS:
            batch.append(waiting.get_nowait())
        try:
            found = await asyncio.to_thread(app.state.model.answer, [inputs for inputs, _ in batch])
        except Exception as error:  # the batch's requests fail, and no others
            found = [error] * len(batch)
        for (_, answer), each in zip(batch, found, strict=True):
            if isinstance(each, Exception):
                answer.set_exception(each)
            elif not answer.cancelled():
                answer.set_result(each)


def serve(model: object) -> None:
    """Serve what answers a list of requests."""
    app.state.model = model
    port = int(sys.argv[1])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    serve(WholeModel())
