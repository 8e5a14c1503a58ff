"""PABEE and PCEE-BERT: one pooler, a classifier per layer, a counter."""

import math

import torch
from torch import Tensor

from tests.support.originals.system import WIDTH, AlbertBackbone, Answer, Row, System
from tests.support.originals.transformer import entropy, linear


class Pabee(System):
    pooler = "bert.pooler.dense"

    def draw_heads(self) -> None:
        self.draw.linear(self.pooler, WIDTH, WIDTH)
        for index in range(self.depth):
            self.draw.linear(f"classifiers.{index}", WIDTH, self.num_labels, spread=2.0)

    def logits(self, row: Row) -> list[Tensor]:
        found = []
        for index, x in enumerate(self.hidden_states(row)):
            pooled = torch.tanh(linear(self.state, self.pooler, x[0]))
            found.append(linear(self.state, f"classifiers.{index}", pooled))
        return found

    def answer(self, row: Row, patience: int, tolerance: float = 0.0) -> Answer:
        said = self.logits(row)
        if patience == 0:
            return Answer(int(said[-1].argmax()), said[-1], self.depth)
        counter, previous, depth = 0, None, 0
        for current in said:
            depth += 1
            agrees = previous is not None and self._agree(previous, current, tolerance)
            counter = counter + 1 if agrees else 0
            previous = current
            if counter == patience:
                break
        return Answer(int(current.argmax()), current, depth)

    def _agree(self, previous: Tensor, current: Tensor, tolerance: float) -> bool:
        if self.num_labels == 1:
            return abs(float(current - previous)) < tolerance
        return int(previous.argmax()) == int(current.argmax())


class PabeeAlbert(AlbertBackbone, Pabee):
    pooler = "albert.pooler"


class Pcee(Pabee):
    """Counts confident layers; may answer with a mean of probabilities."""

    def answer(self, row: Row, patience: int, threshold: float, ensemble: int) -> Answer:
        counter, run, every = 0, [], []
        for said in self.logits(row):
            p = torch.softmax(said, dim=-1)
            unsure = entropy(said) / math.log(self.num_labels)
            counter = counter + 1 if unsure < threshold else 0
            run = [p] if counter == 0 else [*run, p]
            every.append(p)
            if counter == patience:
                break
        answers = {0: said, 1: torch.stack(run).mean(0).log()}
        given = answers.get(ensemble, torch.stack(every).mean(0).log())
        return Answer(int(given.argmax()), given, len(every))


class PceeAlbert(AlbertBackbone, Pcee):
    pooler = "albert.pooler"
