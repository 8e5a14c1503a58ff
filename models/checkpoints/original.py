"""A checkpoint as transformers itself loads and computes it, to compare with."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import (
    disable_progress_bar,
    enable_progress_bar,
    is_progress_bar_enabled,
)

from models.checkpoints.auto_tokenizer import LOCAL, load_auto_tokenizer, quiet
from models.checkpoints.formats import LoadedCheckpoint
from models.checkpoints.parsed import CheckpointInfo
from models.encoders.first_layers import cut_config
from models.encoders.meta import without_memory
from models.errors import in_one_line
from models.model_files import CONFIG, read_json
from models.weight_files import read_weights

Logits = Callable[[Tensor, Tensor], Tensor]

# Characters of transformers' own errors, which may be long.
_SHOWN = 200


class OriginalFails(Exception):
    """transformers loads the model, and cannot compute a text with it."""


@dataclass(frozen=True)
class OriginalModel:
    """A model of transformers that gives the checkpoint's logits at full depth.

    Attributes:
        name: of the class, and what follows it.
        labels: names by id.
        logits: of ids and token types.
    """

    name: str
    labels: list[str]
    logits: Logits

    def __call__(self, ids: Tensor, types: Tensor) -> Tensor:
        """Return the logits for ids and token types of one text, each (1, tokens).

        Raises:
            OriginalFails: there are none.
        """
        try:
            with torch.no_grad():
                return self.logits(ids, types)
        except Exception as error:  # transformers raises no narrower type
            shown = in_one_line(error)[:_SHOWN]
            raise OriginalFails(f"{self.name} fails on a text ({shown})") from error


@dataclass(frozen=True)
class Original:
    """What transformers makes of a folder.

    Attributes:
        tokenizer: None if transformers can load none.
        model: None if no class of transformers fits the weights.
        missing: the reasons for what is None.
    """

    tokenizer: PreTrainedTokenizerBase | None
    model: OriginalModel | None
    missing: tuple[str, ...] = ()


def open_original(folder: Path, loaded: LoadedCheckpoint) -> Original:
    """Load the folder's tokenizer and model with transformers, from local files, without pickles.

    The weights are those that were read here, under the names that they have in the file.
    """
    if loaded.info.exits.unbiased_norm:
        return Original(None, None, ("transformers has no encoder with FastBERT's norms",))
    missing: list[str] = []

    def attempt(what: str, load: Callable[[], Any]) -> Any:
        try:
            return load()
        except Exception as error:  # transformers raises no narrower type
            missing.append(f"{what} cannot load it ({in_one_line(error)[:_SHOWN]})")
            return None

    with quiet(), without_bars():
        config = attempt("AutoConfig", lambda: _config(folder, loaded.info))
        if config is None:
            return Original(None, None, tuple(missing))
        tokenizer = attempt(
            "AutoTokenizer", lambda: load_auto_tokenizer(folder, loaded.info.family)
        )
        model = attempt("AutoModel", lambda: _model(folder, loaded, config))
    return Original(tokenizer, model, tuple(missing))


def _config(folder: Path, info: CheckpointInfo) -> PreTrainedConfig:
    """Return the config as transformers reads it, of the family that was found in the weights."""
    stated = read_json(folder, CONFIG)
    if stated.get("model_type") == info.family:
        config = AutoConfig.from_pretrained(folder, **LOCAL)
    else:
        config = CONFIG_MAPPING[info.family].from_dict(stated | {"model_type": info.family})
    config._attn_implementation = None  # the default: another may need what is not installed
    return cut_config(config, info.depth) if info.depth < config.num_hidden_layers else config


def _model(folder: Path, loaded: LoadedCheckpoint, config: PreTrainedConfig) -> OriginalModel:
    """Return the classifier, or the encoder with the last exit's head if that is not its own."""
    # ElasticBERT's encoder is BERT's under another name.
    weights = {
        f"bert.{n.removeprefix('elasticbert.')}" if n.startswith("elasticbert.") else n: value
        for n, value in read_weights(folder).items()
    }
    of_tokens = loaded.info.exits.task == "token"
    auto = AutoModelForTokenClassification if of_tokens else AutoModelForSequenceClassification
    types_too, labels = loaded.model.backbone.has_token_types, loaded.model.labels
    whole, lacks = _built(auto, config, weights)
    if not lacks:
        name = type(whole).__name__
        return OriginalModel(name, labels, lambda *inputs: _run(whole, types_too, *inputs).logits)
    encoder, of_encoder = _built(AutoModel, config, weights)
    # An encoder's own pooler is no part of its hidden states.
    if any("pooler" not in name for name in of_encoder):
        raise ValueError(f"{type(whole).__name__} has {min(lacks)}, and the folder does not")
    head = loaded.model.head(len(loaded.model.exits) - 1)

    def through_head(ids: Tensor, types: Tensor) -> Tensor:
        hidden = _run(encoder, types_too, ids, types).last_hidden_state
        return head.output(hidden, torch.ones_like(ids)).logits

    name = f"{type(encoder).__name__} through the last exit's head"
    return OriginalModel(name, labels, through_head)


def _built(
    auto: Any, config: PreTrainedConfig, weights: dict[str, Tensor]
) -> tuple[PreTrainedModel, set[str]]:
    """Return a class's model with these weights, and the names of those that it lacks."""
    kind = type(without_memory(lambda: auto.from_config(config), config))
    model, found = kind.from_pretrained(
        None, config=config, state_dict=weights, output_loading_info=True, dtype=torch.float32
    )
    return model.eval(), set(found["missing_keys"])


def _run(model: PreTrainedModel, types_too: bool, ids: Tensor, types: Tensor) -> Any:
    given = {"token_type_ids": types} if types_too else {}
    return model(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True, **given)


@contextmanager
def without_bars() -> Iterator[None]:
    """Keep transformers' progress of loading off the terminal."""
    shown = is_progress_bar_enabled()
    disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            enable_progress_bar()
