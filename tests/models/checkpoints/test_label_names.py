"""Labels of a config: transformers' order, or one sentence before anything is read."""

from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig

from models.checkpoints import UnusableCheckpoint, load
from tests.support.originals.fastbert import FastBert
from tests.support.originals.highway import DeeBert


@pytest.mark.parametrize(
    "stated",
    [
        {"id2label": {"2": "glad", "0": "sad", "1": "so-so"}},
        {"id2label": {str(i): f"l{i}" for i in range(12)}},
        {"id2label": {"10": "k", **{str(i): str(i) for i in range(10)}}},
        {"id2label": {"0": "no", "1": "yes"}, "label2id": {"yes": 1, "no": 0}},
        {"id2label": {"0": "no", "1": "yes"}, "label2id": {"yes": "1", "LABEL_0": 0}},
        {"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}},
        {"num_labels": 5},
        {"num_labels": 2, "id2label": {"0": "no", "1": "yes"}},
        {},
    ],
    ids=str,
)
def test_labels_stand_in_transformers_order(stated: dict[str, Any], tmp_path: Path) -> None:
    system = DeeBert(num_labels=len(stated.get("id2label", ())) or stated.get("num_labels", 2))
    system.config = {k: v for k, v in system.config.items() if k != "num_labels"} | stated
    named = BertConfig(**stated).id2label
    found = load(system.save(tmp_path)).model.labels
    assert found == [named[i] for i in range(len(named))]


def test_the_default_names_of_old_versions_do_not_count(tmp_path: Path) -> None:
    stated = {"0": "LABEL_0", "1": "LABEL_1"}
    labels = load(DeeBert(num_labels=3, id2label=stated).save(tmp_path)).model.labels
    assert labels == ["LABEL_0", "LABEL_1", "LABEL_2"]


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"id2label": {"0": "a", "1": "a"}}, "id2label names 'a' for the labels 0, 1"),
        ({"id2label": {"0": 1, "1": "1"}}, "id2label names '1' for the labels 0, 1"),
        ({"id2label": {"0": "a", "1": "b", "5": "c"}}, "has 3 names and none for label 2"),
        ({"id2label": {"1": "a", "2": "b"}}, "has 2 names and none for label 0"),
        ({"id2label": {"0": "a", "00": "b"}}, "has 2 names and none for label 1"),
        ({"id2label": {}}, "has 0 names and none for label 0"),
        ({"id2label": {"LABEL_0": "a", "LABEL_1": "b"}}, "has the key 'LABEL_0'; expected the ids"),
        ({"id2label": {"-1": "a", "0": "b"}}, "has the key '-1'"),
        ({"id2label": ["a", "b"]}, "id2label must be an object"),
        ({"id2label": {"0": None, "1": "b"}}, "has None for label 0; expected a name"),
        ({"id2label": {"0": "", "1": "b"}}, "has '' for label 0"),
        ({"id2label": {"0": ["a"], "1": "b"}}, r"has \['a'\] for label 0"),
        (
            {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 1, "b": 0}},
            "'a' is label 0 in id2label and 1 in label2id",
        ),
        ({"id2label": {"0": "a", "1": "b"}, "label2id": ["a"]}, "expected an id for each name"),
        ({"label2id": {"no": 0, "yes": 1}}, "label2id names labels, and id2label is missing"),
        ({"num_labels": 3, "id2label": {"0": "a", "1": "b"}}, "num_labels is 3, and .* names 2"),
        ({"num_labels": "2"}, "num_labels is '2'; expected a whole number"),
    ],
    ids=str,
)
def test_labels_without_an_order_are_refused_before_weights_are_read(
    stated: dict[str, Any], message: str, tmp_path: Path
) -> None:
    system = DeeBert(num_labels=2)
    system.config = {k: v for k, v in system.config.items() if k != "num_labels"} | stated
    (system.save(tmp_path) / system.weights_file).unlink()
    with pytest.raises(UnusableCheckpoint, match=rf"config\.json: .*{message}") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("system", [DeeBert, FastBert])
def test_labels_are_as_many_as_the_classifiers(system: type, tmp_path: Path) -> None:
    made = system(num_labels=3, id2label={"0": "a", "1": "b"})
    made.config.pop("num_labels", None)
    with pytest.raises(
        UnusableCheckpoint, match=r"the labels a, b, and the classifier has 3 outputs"
    ):
        load(made.save(tmp_path))
