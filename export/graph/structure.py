"""The structure of a captured program, without the values of its weights."""

import hashlib
from collections.abc import Iterator

from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec
from torch.fx import Node
from torch.fx.node import map_arg


def structure(program: ExportedProgram) -> str:
    """Return everything that a program's translation depends on, except the weights' values.

    This includes operators and their arguments, types and sizes of weights, and the values of
    other tensors. Equal layers of one encoder have equal structures.
    """
    inputs, numbers = _inputs(program), dict[Node, str]()
    lines = [str(program.range_constraints)]
    for node in _live(program):
        numbers[node] = f"%{len(numbers)}"
        if node in inputs:
            lines.append(_describe_input(program, node, inputs[node]))
        else:
            arguments = map_arg((node.args, node.kwargs), numbers.__getitem__)
            lines.append(f"{node.op} {_called(program, node)} {arguments}")
    return "\n".join(lines)


def weights(program: ExportedProgram) -> dict[str, Tensor]:
    """Return the weights that a program uses, by name, in the order of `structure`."""
    inputs = _inputs(program)
    used = [inputs[node] for node in _live(program) if node in inputs]
    names = [spec.target for spec in used if spec.kind is InputKind.PARAMETER]
    return {name: program.state_dict[name] for name in names if name is not None}


def _inputs(program: ExportedProgram) -> dict[Node, InputSpec]:
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    return {n: specs[n.name] for n in program.graph.nodes if n.op == "placeholder"}


def _live(program: ExportedProgram) -> Iterator[Node]:
    """Yield all nodes except unused weights, such as those of other layers."""
    arguments = program.graph_signature.user_inputs
    for node in program.graph.nodes:
        if node.op != "placeholder" or node.users or node.name in arguments:
            yield node


def _describe_input(program: ExportedProgram, node: Node, spec: InputSpec) -> str:
    value = node.meta["val"]
    words = [spec.kind.name, str(value.dtype), str(tuple(value.shape))]
    if spec.target is not None and spec.kind is not InputKind.PARAMETER:
        tensors = dict(program.named_buffers()) | program.constants
        words.append(hashlib.sha256(tensors[spec.target].numpy().tobytes()).hexdigest())
    return " ".join(words)


def _called(program: ExportedProgram, node: Node) -> str:
    """Return a node's operator, or the code of the graph that it calls."""
    if node.op == "get_attr":
        return program.graph_module.get_submodule(str(node.target)).code
    return str(node.target)
