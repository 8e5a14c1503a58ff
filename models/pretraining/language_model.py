"""transformers' masked language models: an encoder of any family with the head that names words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from transformers import AutoModelForMaskedLM, PreTrainedModel

from models.encoders.families import read_encoder
from models.weight_files import read_weights

# From a masked language model and (tokens, width) hidden states to (tokens, vocabulary) logits.
WordHead: TypeAlias = Callable[[Any, Tensor], Tensor]


class LanguageModel(NamedTuple):
    """A masked language model that was read from a folder.

    Attributes:
        model: encoder and word head; the head's last matrix is the embeddings'.
        has_own_head: whether the head is the folder's own too; otherwise it is random.
    """

    model: PreTrainedModel
    has_own_head: bool


def _cls(model: Any, hidden: Tensor) -> Tensor:
    return model.cls(hidden)


def _lm_head(model: Any, hidden: Tensor) -> Tensor:
    return model.lm_head(hidden)


def _distilbert(model: Any, hidden: Tensor) -> Tensor:
    features = model.vocab_layer_norm(model.activation(model.vocab_transform(hidden)))
    return model.vocab_projector(features)


# By transformers' model type.
WORD_HEADS: dict[str, WordHead] = {
    "albert": lambda model, hidden: model.predictions(hidden),
    "bert": _cls,
    "deberta-v2": _cls,
    "distilbert": _distilbert,
    "electra": lambda model, hidden: model.generator_lm_head(model.generator_predictions(hidden)),
    "mobilebert": _cls,
    "modernbert": lambda model, hidden: model.decoder(model.head(hidden)),
    "mpnet": _lm_head,
    "roberta": _lm_head,
    "xlm-roberta": _lm_head,
}


def read_language_model(folder: Path) -> LanguageModel:
    """Return the encoder of a folder with its word head, in float32.

    Raises:
        ValueError: the family is not supported.
        UnusableCheckpoint: the folder holds no encoder that can be read.
    """
    encoder = read_encoder(folder, ["LABEL_0", "LABEL_1"])
    config = encoder.config
    # What a model folder or a classifier says of its answers is not the encoder's.
    for name in ("offramp", "problem_type"):
        if hasattr(config, name):
            delattr(config, name)
    config.tie_word_embeddings = True
    if hasattr(config, "legacy"):  # of DeBERTa: the head's other form ties nothing
        config.legacy = True
    model = AutoModelForMaskedLM.from_config(config, dtype=torch.float32)
    model.base_model.load_state_dict(encoder.state_dict())
    model.tie_weights()
    return LanguageModel(model, _take_head(model, read_weights(folder)))


def _take_head(model: PreTrainedModel, weights: dict[str, Tensor]) -> bool:
    """Set the word head's weights, if all of them are there; return whether they are."""
    inner, tied = f"{model.base_model_prefix}.", model._tied_weights_keys or {}
    own = {
        name: value
        for name, value in model.state_dict().items()
        if not name.startswith(inner) and name not in tied
    }
    if any(name not in weights or weights[name].shape != own[name].shape for name in own):
        return False
    model.load_state_dict({name: weights[name] for name in own}, strict=False)
    return True
