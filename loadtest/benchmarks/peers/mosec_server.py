"""The whole model on mosec: dynamic batches of up to 32 requests, one worker."""

import sys

from mosec import Server, ValidationError, Worker
from whole_model import MAX_ROWS, WholeModel


class Classifier(Worker):
    """Classifies batches of requests."""

    def __init__(self) -> None:
        self.model = WholeModel()

    def deserialize(self, data: bytes) -> str | list[str]:
        """Return the texts of a request."""
        try:
            return super().deserialize(data)["inputs"]
        except (KeyError, TypeError) as error:
            raise ValidationError("a request has the field `inputs`") from error

    def forward(self, data: list[str | list[str]]) -> list[dict]:
        """Answer a batch."""
        return self.model.answer(data)


if __name__ == "__main__":
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", sys.argv[1], "--timeout", "60000"]
    server = Server()
    server.append_worker(
        Classifier, num=1, max_batch_size=MAX_ROWS, max_wait_time=1, route="/v1/classify"
    )
    server.run()
