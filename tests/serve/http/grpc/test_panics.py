"""A library in Rust that panics raises what is no `Exception`."""

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Normalizer

import serve.tokenization.tokenizer
from serve.errors import InvalidBundle
from serve.tokenization.tokenizer import TextEncoder
from tests.serve.http.grpc.conftest import asked, failure, stub
from tests.serve.support.live_server import serving_grpc

# The library believes the tables: this one sends it beyond its end.
BEYOND_THE_END = "BAAAAAAAAAA="
NO_TABLE = "AAAA"
LONG = ["w1 " * 20] * 200  # on a thread
INTERNAL = "internal error; the server's log has the cause"


def with_table(table: str) -> str:
    """Return a tokenizer in JSON whose normalizer has a table."""
    written = json.loads(Tokenizer(BPE()).to_str())
    written["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": table}
    return json.dumps(written)


def panicking() -> Normalizer:
    return Tokenizer.from_str(with_table(BEYOND_THE_END)).normalizer


def test_panic_is_an_error_of_its_request_and_the_server_lives_on(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizers: list[Tokenizer] = []
    load = serve.tokenization.tokenizer._load

    def noted(path: Path) -> Tokenizer:
        tokenizers.append(load(path))
        return tokenizers[-1]

    monkeypatch.setattr(serve.tokenization.tokenizer, "_load", noted)
    with serving_grpc(bundle_folder) as live, stub(live.grpc_address) as calls:
        before = tokenizers[0].normalizer
        for tokenizer in tokenizers:
            tokenizer.normalizer = panicking()
        own = {"error": {"code": "internal", "message": INTERNAL}}
        tei = {"error": INTERNAL, "error_type": "Backend"}
        asks: list[tuple[str, Any, Any]] = [
            ("/v1/classify", {"inputs": "w1"}, own),
            ("/v1/classify", {"inputs": LONG}, own),
            ("/predict", {"inputs": "w1"}, tei),
            ("/tokenize", {"inputs": "w1"}, tei),
        ]
        for path, body, error in asks:
            response = live.http.post(path, json=body)
            assert (response.status_code, response.json()) == (500, error), path
        for values in (["w1"], LONG):
            code, trailing = failure(calls.ModelInfer, asked(values))
            assert (code, trailing["message"]) == (grpc.StatusCode.INTERNAL, INTERNAL)
            assert trailing["x-offramp-error"] == "internal"
        for tokenizer in tokenizers:
            tokenizer.normalizer = before
        assert live.answer("w1")
        assert calls.ModelInfer(asked(["w1"])).model_name == "tiny"


def test_panic_at_loading_is_a_fault_of_the_bundle(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(with_table(NO_TABLE))
    with pytest.raises(InvalidBundle, match="is no tokenizer: Precompiled"):
        TextEncoder(file, max_tokens=8)
