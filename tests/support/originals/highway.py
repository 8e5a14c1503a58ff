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
        """Return what the exits say that are worth having: ramps, the main head at the end."""
        states = self.hidden_states(row)
        return [*(self.ramp(i, x) for i, x in enumerate(states[:-1])), self.main(states[-1])]


class DeeBert(Highway):
    """Tests the last layer's ramp too, which nobody has trained."""

    def answer(self, row: Row, threshold: float) -> Answer:
        for index, x in enumerate(self.hidden_states(row)):
            said = self.ramp(index, x)
            if entropy(said) < threshold:
                return Answer(int(said.argmax()), said, index + 1)
        said = self.main(x)
        return Answer(int(said.argmax()), said, self.depth)

    def mended(self, row: Row, threshold: float) -> Answer:
        """Answer as Offramp says it should have been: without the last ramp."""
        return answer_before_the_last(self, row, lambda i, x, said: entropy(said) < threshold)


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
        return answer_before_the_last(
            self,
            row,
            (lambda i, x, said: self.uncertainty(i, x) < threshold)
            if self.trained
            else (lambda i, x, said: entropy(said) < threshold),
        )


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


def answer_before_the_last(system: Highway, row: Row, leaves: object) -> Answer:
    for index, x in enumerate(system.hidden_states(row)):
        said = system.ramp(index, x)
        if index + 1 < system.depth and leaves(index, x, said):  # type: ignore[operator]
            return Answer(int(said.argmax()), said, index + 1)
    said = system.main(x)
    return Answer(int(said.argmax()), said, system.depth)
