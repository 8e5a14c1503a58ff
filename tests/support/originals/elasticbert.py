"""ElasticBERT: a pooler and a classifier per output layer; entropy or patience."""

import torch
from torch import Tensor

from tests.support.originals.system import WIDTH, Answer, Row, System, first_exit
from tests.support.originals.transformer import entropy, linear


class ElasticBert(System):
    prefix = "elasticbert"
    epsilon = 1e-8

    def draw_heads(self) -> None:
        for index in range(self.depth):
            place = f"elasticbert.encoder.pooler.{index}.dense"
            self.draw.linear(place, WIDTH, WIDTH)
            self.draw.linear(f"classifiers.{index}", WIDTH, self.num_labels, spread=index + 1.0)
        self.state["elasticbert.embeddings.position_ids"] = torch.arange(40)[None]

    def logits(self, row: Row) -> list[Tensor]:
        found = []
        for index, x in enumerate(self.hidden_states(row)):
            pooled = torch.tanh(
                linear(self.state, f"elasticbert.encoder.pooler.{index}.dense", x[0])
            )
            found.append(linear(self.state, f"classifiers.{index}", pooled))
        return found

    def answer(self, row: Row, threshold: float) -> Answer:
        return first_exit(self.logits(row), lambda _, logits: entropy(logits) < threshold)
