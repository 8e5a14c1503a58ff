"""With rules off, plain classifiers answer through HTTP as transformers' own pipelines do.

Of four families: `tests/models/checkpoints/test_comparison.py` has the heads of all,
`test_families.py` beside this file their graphs.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    Pipeline,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    pipeline,
)

from export import bundle as bundles
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.support.families import CONFIGS, with_depth
from tests.support.tiny import MAX_TOKENS, WORDS, tiny_tokenizer
from tests.support.wordpiece import MPNET_SPECIAL, mpnet_wordpiece

TEXTS = ["w1", "w7 w3 w100 w3", "w5 w6 w7 w8 w9 w10 w11 w12 w13 w14 w15", "unheard of w9"]
PAIRS = [("w1 w2", "w3"), ("w4", "w5 w6 w7 w8 w9"), ("w10 w11 w12", "w10 w11 w12")]
LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}
TOLERANCE = 1e-4
# With token types, with another padding id, without token types, and with relative positions.
FAMILIES = ("bert", "mpnet", "modernbert", "deberta-v2")
# Texts of several labels have the graph of texts of one; only the server reads it otherwise.
SEVERAL_OF = "bert"


class Served(NamedTuple):
    """One encoder under several heads, and the server of all."""

    server: LiveServer
    folders: dict[str, Path]

    def pipe(self, name: str, task: str, **options: Any) -> Pipeline:
        """Return transformers' pipeline over a model's folder; it runs one text at a time."""
        return pipeline(task, model=str(self.folders[name]), device="cpu", **options)

    def results(self, name: str, inputs: Any, **fields: Any) -> list[dict[str, Any]]:
        answer = self.server.answer(inputs, model=name, exit={"rule": "never"}, **fields)
        results: list[dict[str, Any]] = answer["results"]
        return results


@pytest.fixture(scope="module", params=FAMILIES)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Return a family's plain transformers classifiers, exported from their folders."""
    root = tmp_path_factory.mktemp(request.param)
    config = with_depth(CONFIGS[request.param], 2)
    config.id2label = LABELS
    config.label2id = {label: i for i, label in LABELS.items()}
    config.pad_token_id = 0
    kinds: dict[str, Any] = {
        "texts": (AutoModelForSequenceClassification, "single_label_classification"),
        "several": (AutoModelForSequenceClassification, "multi_label_classification"),
        "tokens": (AutoModelForTokenClassification, None),
    }
    folders, out = {}, []
    if request.param != SEVERAL_OF:
        del kinds["several"]
    for name, (kind, problem) in kinds.items():
        config.problem_type = problem
        folders[name] = _save(kind.from_config(config), root / f"{name}-model")
        out.append(root / name)
        bundles.write(bundles.plan(folders[name], ("fp32",)), out[-1])
    with serving_bundles(*out) as server:
        yield Served(server, folders)


def _save(model: PreTrainedModel, folder: Path) -> Path:
    torch.manual_seed(1)
    for weights in model.parameters():
        if weights.ndim == 1:
            weights.data.add_(torch.randn_like(weights), alpha=0.1)
    model.eval().save_pretrained(folder)
    types = getattr(model.config, "type_vocab_size", 0) > 1
    ids = ["input_ids", "token_type_ids", "attention_mask"]
    # Tokens of id 1 are padding to MPNet, whatever its config says.
    mpnet = model.config.model_type == "mpnet"
    cls, pad, sep, unk = MPNET_SPECIAL if mpnet else ("[CLS]", "[PAD]", "[SEP]", "[UNK]")
    PreTrainedTokenizerFast(
        tokenizer_object=mpnet_wordpiece(WORDS) if mpnet else tiny_tokenizer(),
        pad_token=pad,
        unk_token=unk,
        cls_token=cls,
        sep_token=sep,
        model_max_length=MAX_TOKENS,
        model_input_names=ids if types else [ids[0], ids[2]],
    ).save_pretrained(folder)
    return folder


def test_texts_and_pairs(served: Served) -> None:
    pipe = served.pipe("texts", "text-classification", top_k=None)
    asked = [*TEXTS, *({"text": a, "text_pair": b} for a, b in PAIRS)]
    expected = [pipe([text])[0] for text in TEXTS]
    expected += [pipe([{"text": a, "text_pair": b}])[0] for a, b in PAIRS]
    for result, ranked in zip(served.results("texts", asked), expected, strict=True):
        assert result["label"] == ranked[0]["label"]
        assert result["scores"] == pytest.approx(_by_label(ranked), abs=TOLERANCE)


@pytest.mark.parametrize("served", [SEVERAL_OF], indirect=True)
def test_several_labels(served: Served) -> None:
    pipe = served.pipe("several", "text-classification", top_k=None)
    for text, result in zip(TEXTS, served.results("several", TEXTS), strict=True):
        scores = _by_label(pipe([text])[0])
        assert result["scores"] == pytest.approx(scores, abs=TOLERANCE)
        assert set(result["labels"]) == {label for label, p in scores.items() if p > 0.5}


@pytest.mark.parametrize("aggregation", ["none", "simple", "first", "average", "max"])
def test_entities(served: Served, aggregation: str) -> None:
    pipe = served.pipe("tokens", "token-classification", aggregation_strategy=aggregation)
    results = served.results("tokens", TEXTS, aggregation=aggregation)
    for text, result in zip(TEXTS, results, strict=True):
        expected = [_named_alike(entity) for entity in pipe(text)]
        assert [_named_alike(entity) for entity in result["entities"]] == expected


def _by_label(ranked: list[dict[str, Any]]) -> dict[str, float]:
    return {entry["label"]: entry["score"] for entry in ranked}


def _named_alike(entity: dict[str, Any]) -> tuple[Any, ...]:
    label = entity.get("entity") or entity.get("entity_group")
    score = pytest.approx(float(entity["score"]), abs=TOLERANCE)
    return label, entity["word"], entity["start"], entity["end"], score
