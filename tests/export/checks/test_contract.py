from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from export.checks.contract import LATER_INPUTS, check_contract, segment_outputs
from export.errors import ExportFailed
from serve.bundle.loader import Bundle
from serve.bundle.manifest import Precision
from serve.rules.traits import Traits

Port = tuple[str, str, tuple[str | int, ...]]

FIRST: list[Port] = [
    ("input_ids", "INT64", ("rows", "tokens")),
    ("attention_mask", "INT64", ("rows", "tokens")),
    ("token_type_ids", "INT64", ("rows", "tokens")),
]
LATER: list[Port] = [
    ("hidden", "FLOAT", ("rows_in", "tokens_in", 32)),
    ("keep", "INT64", ("rows",)),
    ("attention_mask", "INT64", ("rows", "tokens")),
]
OUTPUTS: list[Port] = [
    ("hidden_out", "FLOAT", ("rows", "tokens", 32)),
    ("logits", "FLOAT", ("rows", 3)),
]
SIZES = {"width": 32, "labels": 3}
SAID = segment_outputs(Traits((1, 2), ("a", "b", "c")))


def declared(values: list[onnx.ValueInfoProto]) -> list[Port]:
    ports = []
    for value in values:
        tensor = value.type.tensor_type
        dims = tuple(dim.dim_param or dim.dim_value for dim in tensor.shape.dim)
        ports.append((value.name, onnx.TensorProto.DataType.Name(tensor.elem_type), dims))
    return ports


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_every_segment_declares_the_contract(bundle: Bundle, precision: Precision) -> None:
    for index, path in enumerate(bundle.segment_paths(precision)):
        graph = onnx.load(path).graph
        assert declared(graph.input) == (LATER if index else FIRST)
        assert declared(graph.output) == OUTPUTS


def test_manifest_names_what_the_files_declare(bundle: Bundle) -> None:
    for variant in bundle.manifest.variants.values():
        for segment in variant.segments:
            graph = onnx.load(bundle.folder / segment.file).graph
            assert [value.name for value in graph.input] == list(segment.inputs)
            assert [value.name for value in graph.output] == list(segment.outputs)
            assert Path(segment.file).stem == f"{segment.exit_layer:02d}"


def later(bundle: Bundle) -> ir.Model:
    return ir.load(bundle.segment_paths("fp32")[1])


def test_a_segment_with_another_name_is_refused(bundle: Bundle) -> None:
    model = later(bundle)
    model.graph.outputs[1].name = "scores"
    with pytest.raises(ExportFailed, match=r"the segment has .*'scores'.*expected .*'logits'"):
        check_contract(model, LATER_INPUTS, SIZES, "the segment", SAID)


def test_a_segment_with_a_frozen_axis_is_refused(bundle: Bundle) -> None:
    model = later(bundle)
    model.graph.inputs[1].shape = ir.Shape([2])
    with pytest.raises(ExportFailed, match=r"the segment: keep is INT64 \(2,\), expected"):
        check_contract(model, LATER_INPUTS, SIZES, "the segment", SAID)


def test_a_segment_with_another_element_type_is_refused(bundle: Bundle) -> None:
    model = later(bundle)
    model.graph.outputs[1].dtype = ir.DataType.FLOAT16
    with pytest.raises(ExportFailed, match="logits is FLOAT16"):
        check_contract(model, LATER_INPUTS, SIZES, "the segment", SAID)
