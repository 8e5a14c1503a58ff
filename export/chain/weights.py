"""The file in which the weights of all graphs of a variant lie, equal ones once."""

import hashlib
from pathlib import Path

import onnx_ir as ir

# Smaller tensors stay in their graphs.
MIN_BYTES = 1024
# Kernels read weights where they lie in the file, with vector instructions.
_ALIGNMENT = 64


class WeightsFile:
    """Takes in the weights of one graph after another."""

    def __init__(self, path: Path) -> None:
        """Begin an empty file.

        Args:
            path: in the folder of the graphs, which are to name it.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        self._path = path
        self._offsets: dict[bytes, int] = {}

    def take_in(self, model: ir.Model) -> None:
        """Move a graph's weights into the file. In place; the graph then refers to the file."""
        with self._path.open("ab") as file:
            for value in model.graph.initializers.values():
                tensor = value.const_value
                assert tensor is not None
                if tensor.nbytes < MIN_BYTES:
                    continue
                data = tensor.tobytes()
                digest = hashlib.sha256(data).digest()
                if digest not in self._offsets:
                    file.write(bytes(-file.tell() % _ALIGNMENT))
                    self._offsets[digest] = file.tell()
                    file.write(data)
                value.const_value = ir.ExternalTensor(
                    self._path.name,
                    self._offsets[digest],
                    len(data),
                    tensor.dtype,
                    shape=ir.Shape(tensor.numpy().shape),
                    name=value.name or "",
                    base_dir=self._path.parent,
                )
