"""Every encoder family behaves the same behind its adapter: one row per family."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AlbertConfig, AutoModel, BertConfig, DistilBertConfig, PreTrainedConfig

from models.encoding import EncodedRow
from models.families import FAMILIES, build_encoder, read_encoder
from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel
from models.recipes import RECIPES
from models.training import TrainConfig, TrainingRun

SIZES = {
    "vocab_size": 14,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "initializer_range": 0.2,
}
CONFIGS: dict[str, PreTrainedConfig] = {
    "albert": AlbertConfig(**SIZES, embedding_size=8),
    "bert": BertConfig(**SIZES),
}
IDS = torch.tensor([[2, 4, 10, 3], [2, 7, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
TYPES = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 0]])


def new_model(family: str, exits: tuple[int, ...] = (1, 2, 3)) -> MultiExitModel:
    torch.manual_seed(0)
    encoder = build_encoder(type(CONFIGS[family]).from_dict(CONFIGS[family].to_dict()))
    return MultiExitModel(encoder, ExitConfig(exits=exits, head=HeadConfig(dropout=0))).eval()


def test_every_family_has_a_row_here() -> None:
    assert CONFIGS.keys() == FAMILIES.keys()


@pytest.mark.parametrize("family", CONFIGS)
def test_layers_one_by_one_are_the_encoder_as_a_whole(family: str) -> None:
    model = new_model(family)
    whole = model.encoder(input_ids=IDS, attention_mask=MASK, token_type_ids=TYPES)
    expected = model.heads[-1](whole.last_hidden_state, MASK)
    found = model(IDS, MASK, TYPES)
    assert len(found) == model.backbone.depth == 3
    torch.testing.assert_close(found[-1], expected, atol=1e-5, rtol=0)
    assert not torch.allclose(found[-1], model(IDS, MASK)[-1]), "token types count"


@pytest.mark.parametrize("family", CONFIGS)
def test_saved_model_loads_back_and_is_an_encoder_of_its_family(
    family: str, tmp_path: Path
) -> None:
    model = new_model(family, exits=(2, 3))
    model.save(tmp_path)
    again = MultiExitModel.load(tmp_path)
    for before, after in zip(model(IDS, MASK), again(IDS, MASK), strict=True):
        assert torch.equal(before, after)
    plain = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False)
    assert type(plain) is FAMILIES[family].encoder
    assert plain.state_dict().keys() == model.encoder.state_dict().keys()


@pytest.mark.parametrize("family", CONFIGS)
def test_fresh_heads_go_on_a_pretrained_encoder(family: str, tmp_path: Path) -> None:
    pretrained = build_encoder(CONFIGS[family])
    pretrained.save_pretrained(tmp_path)
    model = MultiExitModel.from_encoder(tmp_path, ["no", "yes"])
    assert (model.exits, model.labels) == ((1, 2, 3), ["no", "yes"])
    for name, weights in pretrained.state_dict().items():
        assert torch.equal(model.encoder.state_dict()[name], weights), name


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_trains_it(
    family: str, recipe: str, make_rows: Callable[..., list[EncodedRow]]
) -> None:
    model, rows = new_model(family), make_rows()
    stages = RECIPES[recipe](model, 0.0)
    run = TrainingRun(model, rows, stages, TrainConfig(epochs=15, lr=3e-3, batch_size=8))
    losses = []
    while not run.finished:
        losses.append(run.step())
    per_stage = len(losses) // len(stages)
    for start in range(0, len(losses), per_stage):
        stage = losses[start : start + per_stage]
        assert sum(stage[-3:]) < 0.6 * sum(stage[:3])


def test_one_layer_serves_every_depth_of_albert() -> None:
    model = new_model("albert")
    assert model.backbone.shared
    layer = {n for n, _ in model.encoder.named_parameters() if "albert_layers" in n}
    assert {name.split(".albert_layers.")[0] for name in layer} == {"encoder.albert_layer_groups.0"}
    hidden = model.backbone.embed(IDS, TYPES, MASK)
    assert hidden.shape == (2, 4, 32), "embeddings of width 8 are mapped"
    assert torch.equal(model.backbone.layer(0, hidden, MASK), model.backbone.layer(2, hidden, MASK))


@pytest.mark.parametrize("groups", [{"num_hidden_groups": 3}, {"inner_group_num": 2}])
def test_albert_with_several_sets_of_layers_is_refused(groups: dict[str, int]) -> None:
    encoder = build_encoder(AlbertConfig(**SIZES, embedding_size=8, **groups))
    with pytest.raises(ValueError, match=r"num_hidden_groups \d and inner_group_num \d: only"):
        MultiExitModel(encoder, ExitConfig(exits=(3,)))


def test_other_families_are_refused_by_name(tmp_path: Path) -> None:
    config = DistilBertConfig()
    with pytest.raises(ValueError, match="'distilbert' is not supported: use one of albert, bert"):
        build_encoder(config)
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="'distilbert' is not supported"):
        read_encoder(tmp_path, ["no", "yes"])
