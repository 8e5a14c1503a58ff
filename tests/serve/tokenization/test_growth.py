import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from serve.errors import InvalidBundle
from serve.tokenization.growth import MOST_PARTS, growth_problem
from serve.tokenization.tokenizer import TextEncoder
from tests.support.tiny import tiny_tokenizer

DOUBLES = {"type": "Replace", "pattern": {"String": "z"}, "content": "zz"}
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
PREPENDS = {"type": "Prepend", "prepend": "\u2581"}
BYTES = {"type": "ByteLevel"}


def precompiled(longest: str) -> dict[str, Any]:
    content = (4).to_bytes(4, "little") + b"trie" + f"a\0{longest}\0".encode()
    return {"type": "Precompiled", "precompiled_charsmap": b64encode(content).decode()}


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


@pytest.mark.parametrize(
    "normalizer",
    [
        None,
        SPACES,
        sequence(*[SPACES] * 9, {"type": "NFKC"}, PREPENDS),
        # SentencePiece's map for NFKC has texts of 18 letters.
        sequence(SPACES, precompiled("l" * 18), SPACES),
        sequence(BYTES, PREPENDS),
        sequence(DOUBLES, sequence(DOUBLES, DOUBLES)),
    ],
)
def test_normalizers_of_models_are_taken(normalizer: dict[str, Any] | None) -> None:
    assert growth_problem(normalizer) is None


@pytest.mark.parametrize(
    "normalizer",
    [
        sequence(*[DOUBLES] * 7),
        sequence(*[sequence(DOUBLES)] * 20),
        sequence(*[BYTES] * 4),
        sequence(*[PREPENDS] * 7),
        sequence(precompiled("l" * 18), precompiled("l" * 18)),
        {"type": "Prepend", "prepend": "z" * 100},
        {"type": "Replace", "pattern": {"Regex": "."}, "content": "z" * 100},
        sequence(*[SPACES] * (MOST_PARTS + 1)),
    ],
)
def test_others_are_refused_before_a_text_goes_through(
    normalizer: dict[str, Any], tmp_path: Path
) -> None:
    assert growth_problem(normalizer)
    if "Precompiled" in json.dumps(normalizer):
        return  # the library reads no made-up map
    document = json.loads(tiny_tokenizer().to_str())
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({**document, "normalizer": normalizer}))
    with pytest.raises(InvalidBundle, match="its normalizer"):
        TextEncoder(file, 64)
