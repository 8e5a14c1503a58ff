from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from export.files import hashes, save_segment
from serve.bundle.loader import Bundle


def test_large_weights_go_beside_the_graph(bundle: Bundle, tmp_path: Path) -> None:
    inline = bundle.segment_paths("fp32")[1]
    path = tmp_path / "segments" / "02.onnx"
    save_segment(ir.load(inline), path, max_inline_bytes=1000)
    assert sorted(hashes(tmp_path)) == ["segments/02.onnx", "segments/02.onnx.data"]
    assert path.stat().st_size < 15_000 < inline.stat().st_size

    feeds = {
        "hidden": np.random.default_rng(0).standard_normal((2, 5, 32)).astype(np.float32),
        "keep": np.arange(2),
        "attention_mask": np.ones((2, 5), np.int64),
    }
    one, other = (
        ort.InferenceSession(p, providers=["CPUExecutionProvider"]).run(None, feeds)
        for p in (inline, path)
    )
    np.testing.assert_array_equal(one[1], other[1])
    save_segment(ir.load(inline), tmp_path / "small" / "02.onnx")
    assert list(hashes(tmp_path / "small")) == ["02.onnx"]
