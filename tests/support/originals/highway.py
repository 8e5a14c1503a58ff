"""DeeBERT and BERxiT: a ramp after every layer, the main head behind the last."""

import torch
from torch import Tensor

from tests.support.originals.system import (
    WIDTH,
    AlbertBackbone,
    Answer,
    DistilBertBackbone,
    RobertaBackbone,
    Row,
    System,
    first_exit,
)
from tests.support.originals.transformer import entropy, linear


class Highway(System):
    """Ramps like the main head: a tanh pooler of the first token, a classifier."""

    place = "bert.encoder"
    main_pooler = "bert.pooler.dense"
    ramp_pooler = "pooler.dense"

    def draw_heads(self) -> None:
        for index in range(self.depth):
            ramp = f"{self.place}.highway.{index}"
            self.draw.linear(f"{ramp}.{self.ramp_pooler}", WIDTH, WIDTH)
            self.draw.linear(f"{ramp}.classifier", WIDTH, self.num_labels, spread=index + 1.0)
        self.draw.linear(self.main_pooler, WIDTH, WIDTH)
        self.draw.linear("classifier", WIDTH, self.num_labels, spread=self.depth)

    def ramp(self, index: int, x: Tensor) -> Tensor:
        place = f"{self.place}.highway.{index}"
        pooled = self.pool(f"{place}.{self.ramp_pooler}", x)
        return linear(self.state, f"{place}.classifier", pooled)

    def main(self, x: Tensor) -> Tensor:
        return linear(self.state, "classifier", self.pool(self.main_pooler, x))

    def pool(self, name: str, x: Tensor) -> Tensor:
        return torch.tanh(linear(self.state, name, x[0]))

    def logits(self, row: Row) -> list[Tensor]:
        """Return the logits of Offramp's exits: all ramps but the last, then the main head."""
        states = self.hidden_states(row)
        return [*(self.ramp(i, x) for i, x in enumerate(states[:-1])), self.main(states[-1])]


class DeeBert(Highway):
    """Also tests the last layer's ramp, which is never trained."""

    def answer(self, row: Row, threshold: float) -> Answer:
        states = self.hidden_states(row)
        logits = [*(self.ramp(i, x) for i, x in enumerate(states)), self.main(states[-1])]
        found = first_exit(logits, lambda _, each: entropy(each) < threshold)
        return found._replace(exit_layer=min(found.exit_layer, self.depth))

    def answer_without_last_ramp(self, row: Row, threshold: float) -> Answer:
        """Answer as Offramp does: the main head is the last exit."""
        return first_exit(self.logits(row), lambda _, logits: entropy(logits) < threshold)


class DeeRoberta(RobertaBackbone, DeeBert):
    """The main head is a plain linear layer on the pooler's output."""

    place, main_pooler = "roberta.encoder", "roberta.pooler.dense"


class Berxit(Highway):
    """One more linear layer, shared by all depths, that predicts each ramp's error."""

    def draw_heads(self) -> None:
        super().draw_heads()
        self.draw.linear(f"{self.place}.lte_classifier", WIDTH, 1, spread=4.0)
        if not self.trained:
            self.state[f"{self.place}.lte_classifier.bias"].zero_()
        for name in [name for name in self.state if name.startswith(f"{self.prefix}.")]:
            self.state[f"core.{name.removeprefix(f'{self.prefix}.')}"] = self.state[name]

    @property
    def trained(self) -> bool:
        return "divide" in self.config

    def uncertainty(self, index: int, x: Tensor) -> float:
        pooled = self.pool(f"{self.place}.highway.{index}.{self.ramp_pooler}", x)
        return self._predicted(pooled)

    def _predicted(self, features: Tensor) -> float:
        return float(torch.sigmoid(linear(self.state, f"{self.place}.lte_classifier", features)))

    def answer(self, row: Row, threshold: float) -> Answer:
        states = self.hidden_states(row)

        def may_leave(index: int, logits: Tensor) -> bool:
            unsure = self.uncertainty(index, states[index]) if self.trained else entropy(logits)
            return unsure < threshold

        return first_exit(self.logits(row), may_leave)


class BerxitRoberta(RobertaBackbone, Berxit):
    place, main_pooler = "roberta.encoder", "roberta.pooler.dense"


class BerxitAlbert(AlbertBackbone, Berxit):
    place, main_pooler = "albert.encoder", "albert.pooler"


class BerxitDistilBert(DistilBertBackbone, Berxit):
    """ReLU instead of tanh; errors are predicted from the first token itself."""

    place, ramp_pooler, main_pooler = "distilbert.transformer", "pre_classifier", "pre_classifier"

    def draw_heads(self) -> None:
        super().draw_heads()
        for name in [name for name in self.state if name.startswith("distilbert.transformer.")]:
            alias = name.replace("distilbert.transformer.", "distilbert.encoder.")
            self.state[alias] = self.state[name]

    def pool(self, name: str, x: Tensor) -> Tensor:
        return torch.relu(linear(self.state, name, x[0]))

    def uncertainty(self, index: int, x: Tensor) -> float:
        return self._predicted(x[0])
