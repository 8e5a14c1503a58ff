"""The whole model on LitServe: batches of up to 32 requests, one worker."""

import sys

import litserve
from whole_model import MAX_ROWS, WAIT_S, WholeModel


class Classifier(litserve.LitAPI):
    """Classifies batches of requests."""

    def setup(self, device: str) -> None:
        """Load the model."""
        self.model = WholeModel()

    def decode_request(self, request: dict) -> str | list[str]:
        """Return the texts of a request."""
        return request["inputs"]

    def predict(self, batch: list[str | list[str]]) -> list[dict]:
        """Answer a batch."""
        return self.model.answer(batch)

    def encode_response(self, output: dict) -> dict:
        """Return the answer's body."""
        return output


if __name__ == "__main__":
    api = Classifier(max_batch_size=MAX_ROWS, batch_timeout=WAIT_S, api_path="/v1/classify")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=60)
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning"
    )
