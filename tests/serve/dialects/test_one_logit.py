"""Models of one logit: what transformers' pipeline, TEI and vLLM answer, on their own routes."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    TextClassificationPipeline,
)

from export import bundle as bundles
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.support.tiny import SPECIAL, WORDS, tiny_tokenizer
from tests.support.wordpiece import save_tokenizer

TEXT = "w1 w2 w3"
CROSS_ENCODER = {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.0.0"}
CONFIGS: dict[str, dict[str, Any]] = {
    "nothing-stated": {},
    "regression": {"problem_type": "regression"},
    "multi-label": {"problem_type": "multi_label_classification"},
    "cross-encoder": {"sentence_transformers": CROSS_ENCODER},
}


class Served(NamedTuple):
    """A server of all models, and the pipeline of each."""

    server: LiveServer
    pipelines: dict[str, TextClassificationPipeline]


def save(folder: Path, config: dict[str, Any]) -> TextClassificationPipeline:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(SPECIAL) + len(WORDS),
            num_hidden_layers=2,
            max_position_embeddings=32,
            initializer_range=0.5,
            num_labels=1,
            **sizes,
            **config,
        )
    ).eval()
    model.save_pretrained(folder)
    save_tokenizer(tiny_tokenizer(), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return TextClassificationPipeline(model=model, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("one-logit")
    pipelines = {name: save(folder / f"{name}-model", each) for name, each in CONFIGS.items()}
    for name in CONFIGS:
        bundles.write(bundles.plan(folder / f"{name}-model", ("fp32",)), folder / name)
    with serving_bundles(*(folder / name for name in CONFIGS)) as server:
        yield Served(server, pipelines)


def hugging_face(server: LiveServer, model: str, **parameters: Any) -> float:
    body = {"inputs": TEXT, "parameters": parameters}
    return server.http.post(f"/models/{model}", json=body).json()[0][0]["score"]


def vllm(server: LiveServer, model: str, **options: Any) -> float:
    body = {"model": model, "input": TEXT, **options}
    return server.http.post("/classify", json=body).json()["data"][0]["probs"][0]


def tei(server: LiveServer, model: str, **options: Any) -> float:
    body = {"inputs": TEXT, **options}
    return server.http.post(f"/models/{model}/predict", json=body).json()[0]["score"]


@pytest.mark.parametrize("name", CONFIGS)
def test_each_client_gets_what_its_own_server_answers_and_on_request_the_value_itself(
    served: Served, name: str
) -> None:
    server, pipeline = served.server, served.pipelines[name]
    (wanted,), (raw,) = pipeline(TEXT), pipeline(TEXT, function_to_apply="none")
    value = raw["score"]
    sigmoid = 1 / (1 + math.exp(-value))
    assert abs(sigmoid - value) > 0.1, "the two are told apart"
    found = hugging_face(server, name), vllm(server, name), tei(server, name)
    assert found == pytest.approx((wanted["score"], wanted["score"], sigmoid), abs=2e-4)
    (own,) = server.answer(TEXT, model=name)["results"]
    asked = (
        own["value"],
        hugging_face(server, name, function_to_apply="none"),
        vllm(server, name, use_activation=False),
        tei(server, name, raw_scores=True),
    )
    assert asked == pytest.approx((value,) * 4, abs=2e-4)
