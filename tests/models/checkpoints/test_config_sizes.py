"""Every number of a config may be anything: what it costs is known before memory is taken."""

import json
import resource
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from transformers import CONFIG_MAPPING

from models.checkpoints import load
from models.encoders.families import FAMILIES, read_encoder
from models.errors import UnusableCheckpoint
from models.multi_exit import MultiExitModel
from tests.models.checkpoints.test_formats import SYSTEMS
from tests.models.checkpoints.test_plain_classifier import make, save
from tests.models.conftest import tiny_tokenizer
from tests.support.json_files import rewrite
from tests.support.originals.system import System

LARGE = 10**9
VALUES = (LARGE, 10**30, -1, 0, 1e9, True, "12", [])
# What makes modules or labels, whether a family's class lists it or not.
ALWAYS = ("num_labels", "num_hidden_groups", "inner_group_num", "num_feedforward_networks")
ROOM_BYTES = 1 << 30


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Let this process take a gigabyte more and not two."""
    used, limit = psutil.Process().memory_info().vms, resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, limit[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limit)


def numbers_of(family: str, config: Mapping[str, Any]) -> list[str]:
    """Return the keys that hold numbers in the file, by default, or under another name."""
    kind = CONFIG_MAPPING[family]
    stated = {**kind().to_dict(), **config}
    numeric = [key for key, value in stated.items() if type(value) in (int, float)]
    return [*dict.fromkeys([*numeric, *kind.attribute_map, *ALWAYS])]


def refusal(read: Callable[[Path], object], folder: Path) -> str:
    """Return why a folder is refused; empty if it is not."""
    try:
        read(folder)
    except UnusableCheckpoint as error:
        return str(error)
    return ""


def some_values(keys: Collection[str], turn: int) -> dict[str, Sequence[Any]]:
    """Return two values for every key: a large one, and one that the next turn replaces."""
    others = VALUES[1:]
    return {key: (LARGE, others[(turn + i) % len(others)]) for i, key in enumerate(keys)}


def assert_bounded(
    folder: Path, values: Mapping[str, Sequence[Any]], read: Callable[[Path], object] = load
) -> dict[str, int]:
    """Read the folder with every value at its key; return how many of each key were refused."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    refused = dict.fromkeys(values, 0)
    for key, value in [(key, value) for key, tried in values.items() for value in tried]:
        path.write_text(json.dumps({**config, key: value}))
        if message := refusal(read, folder):
            refused[key] += 1
            assert "\n" not in message, (key, value)
            assert "memory" not in message.lower(), (key, value)
    path.write_text(json.dumps(config))
    return refused


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("family", FAMILIES)
def test_no_number_of_a_config_takes_memory_of_its_own(family: str, tmp_path: Path) -> None:
    folder = save(make(family), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    keys = numbers_of(family, config)
    layers = "n_layers" if family == "distilbert" else "num_hidden_layers"
    sizes = dict.fromkeys((layers, "num_labels", "vocab_size"), VALUES)
    refused = assert_bounded(folder, some_values(keys, [*FAMILIES].index(family)) | sizes)
    assert {key: refused[key] for key in sizes} == dict.fromkeys(sizes, len(VALUES))
    bare = partial(read_encoder, labels=["no", "yes"])
    assert_bounded(folder, dict.fromkeys(keys, (LARGE,)), bare)


# What the formats' readers take out of configs, besides what transformers does.
SETTINGS = (
    *("patience", "regression_threshold", "exiting_threshold", "do_ensemble", "early_exit_entropy"),
    *("num_output_layers", "max_output_layers", "speed", "divide", "train_routine"),
    *("layers_num", "heads_num", "feedforward_size", "hidden_size", "num_labels", "id2label"),
    *("embedding", "pooling", "architectures", "model_type", "problem_type", "pruned_heads"),
)


OTHERS = ["BERxiT", "PABEE, ALBERT", "PCEE-BERT", "ElasticBERT", "FastBERT"]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("name", OTHERS)
def test_no_setting_of_another_system_takes_memory_of_its_own(name: str, tmp_path: Path) -> None:
    make_system: Callable[[], System] = SYSTEMS[name][0]
    folder = make_system().save(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert_bounded(folder, some_values({**config, **dict.fromkeys(SETTINGS)}, OTHERS.index(name)))


EXITS: list[dict[str, Any]] = [
    {"exits": [1, 2, 10**9]},
    {"exits": [3, -(10**9), 3]},
    {"exits": "all"},
    {"head": {"kind": "attention", "width": 10**9}},
    {"head": {"kind": "attention", "num_heads": 10**9}},
    {"head": {"norm": 10**9}},
    {"head": {"dropout": 7}},
    {"unbiased_norm": 3},
    {"second_head": True},
]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("change", EXITS, ids=str)
@pytest.mark.parametrize("read", [load, MultiExitModel.load])
def test_offramps_own_key_is_bounded_too(
    make_model: Callable[..., MultiExitModel],
    read: Callable[[Path], object],
    change: dict[str, Any],
    tmp_path: Path,
) -> None:
    make_model().save(tmp_path)
    tiny_tokenizer().save(str(tmp_path / "tokenizer.json"))
    rewrite(tmp_path / "config.json", lambda config: config["offramp"].update(change))
    with pytest.raises(UnusableCheckpoint) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)
