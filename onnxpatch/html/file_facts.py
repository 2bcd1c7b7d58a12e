"""What a page says of a file: its inputs and outputs with dtypes and free sizes, and how large it is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxpatch.messages.quantities import in_bytes
from onnxpatch.onnxfile.graph import dtype_name
from onnxpatch.onnxfile.mapped_weights import bytes_of

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto


@dataclass(frozen=True)
class FileValue:
    """One input or output. shape: sizes, and the names of those that are free."""

    name: str
    dtype: str
    shape: list[tuple[str, bool]]


def inputs(proto: ModelProto) -> list[FileValue]:
    """The inputs, without the weights that old files list among them."""
    weights = {initializer.name for initializer in proto.graph.initializer}
    return _values(value for value in proto.graph.input if value.name not in weights)


def outputs(proto: ModelProto) -> list[FileValue]:
    """The outputs."""
    return _values(proto.graph.output)


def _values(declared: Iterable[ValueInfoProto]) -> list[FileValue]:
    found = []
    for value in declared:
        tensor = value.type.tensor_type
        dims = [
            (str(d.dim_value), False) if d.HasField("dim_value") else (d.dim_param or "?", True)
            for d in tensor.shape.dim
        ]
        found.append(FileValue(value.name, dtype_name(tensor.elem_type) if tensor.elem_type else "optional", dims))
    return found


def size(file: str | os.PathLike[str] | None) -> str:
    """The size of a file and of its external weights as text, such as `4.2 MB`; "" if there is no file."""
    total = bytes_of(file) if file is not None else 0
    return in_bytes(total) if total else ""
