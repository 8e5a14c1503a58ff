"""A library in Rust that panics raises what is no `Exception`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from serve.bundle.loader import TOKENIZER, sha256_of
from serve.errors import InvalidBundle
from serve.tokenization.tokenizer import TextEncoder
from tests.serve.http.grpc.conftest import asked, failure, stub
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.live_server import serving_grpc

# The library believes the tables of a normalizer: this one sends it beyond its end.
BEYOND_THE_END = "BAAAAAAAAAA="
NO_TABLE = "AAAA"
LONG = ["w1 " * 20] * 200  # on a thread
IDS = {"input_ids": [2, 7, 3]}


def set_table(file: Path, table: str) -> None:
    written = json.loads(file.read_text())
    written["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": table}
    file.write_text(json.dumps(written))


def test_panic_is_an_error_of_its_request_and_the_server_lives_on(
    bundle_copy: Callable[..., Path],
) -> None:
    folder = bundle_copy("tiny")
    set_table(folder / TOKENIZER, BEYOND_THE_END)
    files = {TOKENIZER: sha256_of(folder / TOKENIZER)}
    rewrite_manifest(folder, lambda manifest: manifest["files"].update(files))
    asks: list[tuple[str, Any]] = [
        ("/v1/classify", {"inputs": "w1"}),
        ("/v1/classify", {"inputs": LONG}),
        ("/predict", {"inputs": "w1"}),
        ("/tokenize", {"inputs": "w1"}),
    ]
    with serving_grpc(folder) as live, stub(live.grpc_address) as calls:
        for path, body in asks:
            answer = live.http.post(path, json=body)
            assert answer.status_code == 500, path
            assert "panic" not in answer.text
        for values in (["w1"], LONG):
            code, trailing = failure(calls.ModelInfer, asked(values))
            assert (code, trailing["x-offramp-error"]) == (grpc.StatusCode.INTERNAL, "internal")
        assert live.answer(IDS)


def test_panic_at_loading_is_a_fault_of_the_bundle(bundle_copy: Callable[..., Path]) -> None:
    file = bundle_copy("tiny") / TOKENIZER
    set_table(file, NO_TABLE)
    with pytest.raises(InvalidBundle):
        TextEncoder(file, max_tokens=8)
