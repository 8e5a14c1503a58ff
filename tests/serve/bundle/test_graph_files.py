"""A graph may refer to the bundle's own verified files and to nothing else."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper

from serve.bundle.graph_files import MOST_BYTES
from serve.bundle.loader import load_bundle, sha256_of
from serve.errors import InvalidBundle
from tests.serve.support.bundles import rewrite_manifest

CopyBundle = Callable[..., Path]
Change = Callable[[ModelProto, TensorProto], None]
GRAPHS = ["segments/fp32/02.onnx", "segments/int8/joined.onnx"]
PLACES = [
    "secret.bin",
    "../../secret.bin",
    "/etc/passwd",
    "./weights.bin",
    "*/_ORT_MEM_ADDR_/*",
    "",
]


def outside(location: str) -> TensorProto:
    """Return a tensor whose values are said to lie in a file."""
    tensor = TensorProto(name="added", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def constant(tensor: TensorProto) -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["added_value"], value=tensor)


def as_initializer(model: ModelProto, tensor: TensorProto) -> None:
    model.graph.initializer.append(tensor)


def as_constant(model: ModelProto, tensor: TensorProto) -> None:
    model.graph.node.append(constant(tensor))


def in_a_list(model: ModelProto, tensor: TensorProto) -> None:
    node = model.graph.node.add(op_type="Any")
    node.attribute.add(name="many", type=AttributeProto.TENSORS).tensors.append(tensor)


def in_a_branch(model: ModelProto, tensor: TensorProto) -> None:
    branch = helper.make_graph([constant(tensor)], "branch", [], [])
    model.graph.node.append(
        helper.make_node("If", ["c"], ["o"], then_branch=branch, else_branch=branch)
    )


def in_a_function(model: ModelProto, tensor: TensorProto) -> None:
    model.functions.add(name="own", domain="own").node.append(constant(tensor))


def in_a_sparse_tensor(model: ModelProto, tensor: TensorProto) -> None:
    model.graph.sparse_initializer.add().values.CopyFrom(tensor)


def in_training(model: ModelProto, tensor: TensorProto) -> None:
    model.training_info.add().algorithm.initializer.append(tensor)


WAYS = [
    as_initializer,
    as_constant,
    in_a_list,
    in_a_branch,
    in_a_function,
    in_a_sparse_tensor,
    in_training,
]


def change_graph(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    digest = sha256_of(folder / name)
    rewrite_manifest(folder, lambda manifest: manifest["files"].update({name: digest}))


def refusal(folder: Path) -> str:
    with pytest.raises(InvalidBundle) as caught:
        load_bundle(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("change", WAYS)
def test_graph_that_refers_to_a_file_which_is_not_listed_is_refused(
    bundle_copy: CopyBundle, name: str, change: Change
) -> None:
    folder = bundle_copy()
    (folder / name).with_name("secret.bin").write_bytes(bytes(16))
    model = onnx.load(folder / name, load_external_data=False)
    change(model, outside("secret.bin"))
    change_graph(folder, name, model.SerializeToString())
    assert f"{name} refers to a file 'secret.bin'" in refusal(folder)


@pytest.mark.parametrize("location", PLACES)
def test_location_is_the_name_of_a_listed_file_beside_the_graph(
    bundle_copy: CopyBundle, location: str
) -> None:
    folder = bundle_copy()
    (folder / "secret.bin").write_bytes(bytes(16))
    model = onnx.load(folder / GRAPHS[0], load_external_data=False)
    as_initializer(model, outside(location))
    change_graph(folder, GRAPHS[0], model.SerializeToString())
    assert f"refers to a file {location!r}" in refusal(folder)


def test_listed_file_beside_the_graph_is_what_a_graph_may_refer_to(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    model = onnx.load(folder / GRAPHS[0], load_external_data=False)
    as_initializer(model, outside("weights.bin"))
    change_graph(folder, GRAPHS[0], model.SerializeToString())
    load_bundle(folder)


def test_compiled_code_is_refused(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    model = onnx.load(folder / GRAPHS[0], load_external_data=False)
    node = helper.make_node("EPContext", [], ["o"], domain="com.microsoft", ep_cache_context="x")
    model.graph.node.append(node)
    change_graph(folder, GRAPHS[0], model.SerializeToString())
    assert "has a node EPContext" in refusal(folder)


# A tag of a 32 bit reader: 0x3a is the field `graph`, and 1 << 32 beyond it is dropped.
WIDE_TAG = bytes([0xBA, 0x80, 0x80, 0x80, 0x10, 0])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"ORTM", "it "),
        (bytes([0x3A, 0x7F]), "it is cut off"),
        (bytes([0x3B]), "a field of the form 3"),
        (bytes([0xFF] * 11), "more than ten bytes"),
        (WIDE_TAG, "too large a number"),
        (bytes([0x3A, 0xFF]), "index out of"),
    ],
)
def test_bytes_that_are_no_graph_are_refused(
    bundle_copy: CopyBundle, content: bytes, reason: str
) -> None:
    folder = bundle_copy()
    change_graph(folder, GRAPHS[0], content)
    assert f"{GRAPHS[0]} is no ONNX graph" in refusal(folder)
    assert reason in refusal(folder)


def test_graph_within_graphs_without_end_is_refused(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    model = onnx.load(folder / GRAPHS[0], load_external_data=False)
    branch = helper.make_graph([], "branch", [], [])
    for _ in range(30):
        node = helper.make_node("If", ["c"], ["o"], then_branch=branch, else_branch=branch)
        branch = helper.make_graph([node.__deepcopy__()], "branch", [], [])
        del branch.node[0].attribute[1]
    model.graph.node.append(helper.make_node("If", ["c"], ["o"], then_branch=branch))
    change_graph(folder, GRAPHS[0], model.SerializeToString())
    assert "nested too deeply" in refusal(folder)


def test_graph_of_any_size_is_not_read(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    with (folder / GRAPHS[0]).open("ab") as file:
        file.truncate(MOST_BYTES + 1)
    change_graph_hash = sha256_of(folder / GRAPHS[0])
    rewrite_manifest(folder, lambda m: m["files"].update({GRAPHS[0]: change_graph_hash}))
    assert "has more than 64 MiB" in refusal(folder)


def test_another_format_of_onnx_runtime_is_refused(bundle_copy: CopyBundle) -> None:
    folder = bundle_copy()
    (folder / GRAPHS[0]).rename(folder / "segments/fp32/02.ort")

    def rename(manifest: dict[str, object]) -> None:
        files, variants = manifest["files"], manifest["variants"]
        assert isinstance(files, dict)
        assert isinstance(variants, dict)
        files["segments/fp32/02.ort"] = files.pop(GRAPHS[0])
        variants["fp32"]["segments"][1]["file"] = "segments/fp32/02.ort"

    rewrite_manifest(folder, rename)
    assert "must end in .onnx" in refusal(folder)
