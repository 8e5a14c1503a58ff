"""Every encoder family behaves the same behind the common interface: one row per family."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, XLNetConfig

from models.data.encoding import EncodedRow
from models.encoders.families import FAMILIES, build_backbone, build_encoder, read_encoder
from models.errors import UnusableCheckpoint
from models.multi_exit import ExitConfig, HeadConfig, MultiExitModel
from models.training.job import TrainConfig
from models.training.objective import Objective
from models.training.recipes import RECIPES
from models.training.training_run import TrainingRun
from tests.support.families import CONFIGS, FORMS, MAX_TOKENS, tiny_encoder, with_depth
from tests.support.json_files import rewrite

ALL = CONFIGS | FORMS
IDS = torch.tensor([[2, 4, 10, 3], [2, 7, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
TYPES = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 0]])


def new_model(name: str, exits: tuple[int, ...] = (1, 2, 3)) -> MultiExitModel:
    config = ExitConfig(exits=exits, head=HeadConfig(dropout=0))
    return MultiExitModel(tiny_encoder(ALL[name]), config).eval()


def last_states(model: MultiExitModel, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
    hidden = model.backbone.embed(ids, types, mask)
    hidden = model.run_layers(hidden, mask, 0, model.backbone.depth)
    return model.backbone.head_input(hidden)


def transformers_states(model: MultiExitModel, *, types: Tensor, **inputs: Tensor) -> Tensor:
    if model.backbone.has_token_types:
        inputs["token_type_ids"] = types
    return model.encoder(**inputs).last_hidden_state


def test_every_family_has_a_row() -> None:
    assert CONFIGS.keys() == FAMILIES.keys()


def padded_batch(model: MultiExitModel) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, mask and token types of three texts, the last of two tokens."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 200, (3, 40), generator=generator)
    types = torch.randint(0, 2, ids.shape, generator=generator)
    mask = (torch.arange(40) < torch.tensor([[40], [17], [2]])).long()
    ids[mask == 0] = model.config.pad_token_id
    return ids, mask, types


@pytest.mark.parametrize("name", ALL)
def test_every_text_of_a_batch_gets_what_transformers_gives_it_alone(name: str) -> None:
    model = new_model(name)
    assert model.backbone.depth == 3
    ids, mask, types = padded_batch(model)
    found = last_states(model, ids, mask, types)
    assert torch.isfinite(found).all(), "of padding, too: pooling multiplies it by 0"
    for row, length in enumerate(mask.sum(dim=1)):
        alone = transformers_states(
            model, input_ids=ids[[row], :length], types=types[[row], :length]
        )
        torch.testing.assert_close(found[row, :length], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_token_types_count_where_there_are_any(name: str) -> None:
    model = new_model(name)
    with_types, without = model(IDS, MASK, TYPES)[-1], model(IDS, MASK)[-1]
    assert model.backbone.has_token_types != torch.equal(with_types, without)


@pytest.mark.parametrize("name", ALL)
def test_the_longest_text_goes_through_and_transformers_takes_no_longer_one(name: str) -> None:
    model = new_model(name)
    assert model.backbone.max_tokens == MAX_TOKENS
    ids = torch.full((1, MAX_TOKENS + 1), 5)
    assert torch.isfinite(model(ids[:, 1:], torch.ones_like(ids[:, 1:]))[-1]).all()
    if any("position_embeddings" in weights for weights, _ in model.encoder.named_parameters()):
        with pytest.raises((IndexError, RuntimeError)):
            model.encoder(input_ids=ids)


@pytest.mark.parametrize("family", CONFIGS)
def test_saved_model_loads_back_and_is_an_encoder_of_its_family(
    family: str, tmp_path: Path
) -> None:
    model = new_model(family, exits=(2, 3))
    model.save(tmp_path)
    again = MultiExitModel.load(tmp_path)
    for before, after in zip(model(IDS, MASK), again(IDS, MASK), strict=True):
        assert torch.equal(before, after)
    assert (again.exits, again.labels) == (model.exits, model.labels)
    assert not again.training
    modes = [(tmp_path / name).stat().st_mode for name in ("config.json", "model.safetensors")]
    assert modes[0] & 0o044 == modes[1] & 0o044, "other users may read the weights"
    plain = AutoModel.from_pretrained(tmp_path, **FAMILIES[family].options)
    assert type(plain) is FAMILIES[family].encoder
    assert plain.state_dict().keys() == model.encoder.state_dict().keys()


@pytest.mark.parametrize(
    ("family", "form"),
    [*((family, "model.safetensors") for family in CONFIGS), ("bert", "pytorch_model.bin")],
)
def test_fresh_heads_go_on_a_pretrained_encoder(
    family: str,
    form: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # A config of its own: saving notes in it that the weights are halves.
    config = with_depth(CONFIGS[family], 3)
    pretrained = AutoModelForSequenceClassification.from_config(config).half()
    pretrained.save_pretrained(tmp_path)
    if form == "pytorch_model.bin":
        (tmp_path / "model.safetensors").unlink()
        torch.save(pretrained.state_dict(), tmp_path / form)
    logging.getLogger("transformers").addHandler(caplog.handler)
    capfd.readouterr()
    try:
        model = MultiExitModel.from_encoder(tmp_path, ["no", "yes", "maybe"])
    finally:
        logging.getLogger("transformers").removeHandler(caplog.handler)
    assert not caplog.records
    assert capfd.readouterr() == ("", ""), "other weights in the folder are ignored silently"
    assert (model.exits, model.labels) == ((1, 2, 3), ["no", "yes", "maybe"])
    kept = pretrained.base_model.state_dict()
    for name, weights in model.encoder.state_dict().items():
        assert weights.dtype == torch.float32
        assert torch.equal(weights, kept[name].float()), name


@pytest.mark.parametrize("family", CONFIGS)
def test_first_layers_of_an_encoder_compute_what_they_do_in_the_whole(
    family: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    AutoModel.from_config(with_depth(CONFIGS[family], 3)).save_pretrained(tmp_path)
    whole = MultiExitModel.from_encoder(tmp_path, ["no", "yes"]).eval()
    cut = MultiExitModel.from_encoder(tmp_path, ["no", "yes"], (2,), layers=2).eval()
    assert (cut.backbone.depth, cut.config.num_hidden_layers) == (2, 2)
    with torch.no_grad():
        hidden = whole.backbone.embed(IDS, TYPES, MASK)
        expected = whole.backbone.head_input(whole.run_layers(hidden, MASK, 0, 2))
        found = last_states(cut, IDS, MASK, TYPES)
    torch.testing.assert_close(found, expected)
    cut.save(tmp_path / "cut")
    again = last_states(MultiExitModel.load(tmp_path / "cut"), IDS, MASK, TYPES)
    torch.testing.assert_close(again, expected)


@pytest.mark.parametrize("name", ["encoder.", "net.text_model."])
@pytest.mark.parametrize("family", ["albert", "bert", "modernbert"])
def test_an_encoder_inside_a_class_of_its_own_is_found(
    family: str, name: str, tmp_path: Path
) -> None:
    encoder = build_encoder(CONFIGS[family])
    encoder.save_pretrained(tmp_path)
    wrapped = {f"{name}{key}": value for key, value in encoder.state_dict().items()}
    (tmp_path / "model.safetensors").unlink()
    torch.save(wrapped | {"fc.weight": torch.ones(2, 2)}, tmp_path / "pytorch_model.bin")
    found = read_encoder(tmp_path, ["no", "yes"]).state_dict()
    assert all(torch.equal(value, found[key]) for key, value in encoder.state_dict().items())


def test_of_two_encoders_in_a_folder_none_is_guessed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = build_encoder(CONFIGS["bert"])
    encoder.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    own = {f"student.bert.{name}": value for name, value in encoder.state_dict().items()}
    other = {name.replace("student", "ema"): value.clone() for name, value in own.items()}
    torch.save(own | other, tmp_path / "pytorch_model.bin")
    assert read_encoder(tmp_path, ["no", "yes"]), "copies are one encoder"
    table = {"label_embedder.embeddings.word_embeddings.weight": torch.ones(9, 16)}
    torch.save(own | table, tmp_path / "pytorch_model.bin")
    assert read_encoder(tmp_path, ["no", "yes"]), "a table of embeddings is no encoder"
    other["ema.bert.encoder.layer.1.output.dense.bias"] += 1
    torch.save(own | other, tmp_path / "pytorch_model.bin")
    with pytest.raises(UnusableCheckpoint, match=r"holds several encoders, ema\..* and student\."):
        read_encoder(tmp_path, ["no", "yes"])


@pytest.mark.parametrize("part", ["prompt.weight", "invertible_adapters.x.F.0.weight"])
def test_parts_beside_the_encoder_s_own_are_refused(part: str, tmp_path: Path) -> None:
    encoder = build_encoder(CONFIGS["bert"])
    encoder.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    inside = {f"bert.{name}": value for name, value in encoder.state_dict().items()}
    heads = {"classifier.weight": torch.ones(2, 2), "bert.pooler.dense.weight": torch.ones(2)}
    torch.save(inside | heads, tmp_path / "pytorch_model.bin")
    assert read_encoder(tmp_path, ["no", "yes"])
    torch.save(inside | heads | {f"bert.{part}": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UnusableCheckpoint, match=f"has no such part: bert.{part};"):
        read_encoder(tmp_path, ["no", "yes"])


def test_a_saved_model_says_the_type_of_its_own_weights(tmp_path: Path) -> None:
    AutoModel.from_config(with_depth(CONFIGS["bert"], 3)).half().save_pretrained(tmp_path)
    model = MultiExitModel.from_encoder(tmp_path, ["no", "yes"])
    for dtype in (torch.float32, torch.float16):
        model.save(tmp_path / "out", dtype)
        assert AutoModel.from_pretrained(tmp_path / "out").dtype == dtype


def test_roberta_needs_the_padding_s_id_to_count_positions(tmp_path: Path) -> None:
    config = type(CONFIGS["roberta"]).from_dict(CONFIGS["roberta"].to_dict())
    build_encoder(config).save_pretrained(tmp_path)
    rewrite(tmp_path / "config.json", lambda config: config.update(pad_token_id=None))
    with pytest.raises(ValueError, match="pad_token_id is null"):
        MultiExitModel.from_encoder(tmp_path, ["no", "yes"])


def test_an_encoder_with_weights_missing_is_refused(tmp_path: Path) -> None:
    build_encoder(CONFIGS["bert"]).save_pretrained(tmp_path)
    with_depth(CONFIGS["bert"], 4).save_pretrained(tmp_path)
    with pytest.raises(UnusableCheckpoint, match=r"the bert encoder: enc.* is missing \(16 in all"):
        read_encoder(tmp_path, ["no", "yes"])


@pytest.mark.parametrize("name", ALL)
def test_gradients_reach_every_matrix(name: str) -> None:
    model = new_model(name).train()
    labels = torch.tensor([0, 1])
    sum(torch.nn.functional.cross_entropy(x, labels) for x in model(IDS, MASK, TYPES)).backward()
    matrices = {n: p.grad for n, p in model.named_parameters() if p.ndim > 1}
    assert not [name for name, grad in matrices.items() if grad is None or not grad.any()]


@pytest.mark.parametrize("recipe", ["two-stage", "gradient-equilibrium"])
def test_recipes_train_shared_layers(
    recipe: str, make_rows: Callable[..., list[EncodedRow]]
) -> None:
    torch.manual_seed(0)
    encoder = build_encoder(CONFIGS["albert"])
    model = MultiExitModel(encoder, ExitConfig(exits=(1, 2, 3), head=HeadConfig(dropout=0)))
    stages = RECIPES[recipe](model, Objective())
    run = TrainingRun(model, make_rows(), stages, TrainConfig(epochs=15, lr=3e-3, batch_size=8))
    losses = []
    while not run.finished:
        losses.append(run.step())
    per_stage = len(losses) // len(stages)
    for start in range(0, len(losses), per_stage):
        stage = losses[start : start + per_stage]
        assert sum(stage[-3:]) < 0.6 * sum(stage[:3])


ROPE = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("albert", {"num_hidden_groups": 3}, "num_hidden_groups 3 and inner_group_num 1: only"),
        ("albert", {"inner_group_num": 2}, "num_hidden_groups 1 and inner_group_num 2: only"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}},
            "rope_type 'dynamic': only ModernBERT models whose",
        ),
    ],
)
def test_forms_that_cannot_be_split_into_layers_are_refused(
    family: str, changes: dict[str, object], message: str
) -> None:
    config = type(CONFIGS[family]).from_dict(CONFIGS[family].to_dict() | changes)
    with pytest.raises(ValueError, match=message):
        build_backbone(build_encoder(config))


def test_other_families_are_refused_by_name(tmp_path: Path) -> None:
    config = XLNetConfig()
    listed = "use one of albert, bert, deberta-v2, distilbert"
    with pytest.raises(ValueError, match=f"'xlnet' is not supported: {listed}"):
        build_encoder(config)
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="'xlnet' is not supported"):
        read_encoder(tmp_path, ["no", "yes"])
