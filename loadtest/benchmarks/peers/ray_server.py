"""The whole model on Ray Serve: `@serve.batch` with up to 32 requests, one replica."""

import signal
import sys

import ray
from ray import serve
from starlette.requests import Request
from whole_model import MAX_ROWS, WAIT_S, WholeModel


@serve.deployment(max_ongoing_requests=1000)
class Classifier:
    """Classifies batches of requests."""

    def __init__(self) -> None:
        self.model = WholeModel()

    @serve.batch(max_batch_size=MAX_ROWS, batch_wait_timeout_s=WAIT_S)
    async def answer(self, requests: list[str | list[str]]) -> list[dict]:
        """Answer a batch."""
        return self.model.answer(requests)

    async def __call__(self, request: Request) -> dict:
        """Answer a request."""
        return await self.answer((await request.json())["inputs"])


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Classifier.bind(), route_prefix="/v1/classify")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()
