"""Model2Vec's fine-tuned classifier behind FastAPI: vectors of tokens and one hidden layer."""

import os
from collections.abc import Sequence
from typing import Any

from fastapi_server import serve
from model2vec.inference import StaticModelPipeline


class Static:
    """Classifies texts."""

    def __init__(self) -> None:
        self._pipeline = StaticModelPipeline.from_pretrained(os.environ["PREPARED"])

    def answer(self, requests: Sequence[str | list[str]]) -> list[dict[str, Any]]:
        """Return an answer for each request, which is a text or several; all share a batch."""
        listed = [[texts] if isinstance(texts, str) else texts for texts in requests]
        found = iter(self._pipeline.predict([text for texts in listed for text in texts]))
        return [{"results": [{"label": str(next(found))} for _ in texts]} for texts in listed]


if __name__ == "__main__":
    serve(Static())
