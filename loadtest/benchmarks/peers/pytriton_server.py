"""The whole model on Triton by pytriton: dynamic batches of up to 32 texts."""

import sys

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig
from whole_model import MAX_ROWS, WAIT_S, WholeModel

model = WholeModel()


@batch
def classify(text: np.ndarray) -> dict[str, np.ndarray]:
    """Answer a batch."""
    found = model.classify([row.decode() for row in text[:, 0]])
    return {"label": np.array([[result["label"].encode()] for result in found])}


if __name__ == "__main__":
    config = TritonConfig(http_port=int(sys.argv[1]), http_address="127.0.0.1", allow_grpc=False)
    batcher = DynamicBatcher(max_queue_delay_microseconds=int(WAIT_S * 1e6))
    with Triton(config=config) as triton:
        triton.bind(
            model_name="offramp",
            infer_func=classify,
            inputs=[Tensor(name="text", dtype=bytes, shape=(1,))],
            outputs=[Tensor(name="label", dtype=bytes, shape=(1,))],
            config=ModelConfig(max_batch_size=MAX_ROWS, batcher=batcher),
        )
        triton.serve()
