"""Puts weights from memory into an ONNX file that has inputs in their place, a tensor at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import torch

from onnxpatch.onnxfile.editing import edited
from onnxpatch.onnxfile.mapped_weights import MOST_IN_ONE_FILE, take_in

_PAGE = 1 << 12  # a runtime can map a tensor that starts a page


def add_weights(path: Path, weights: Mapping[str, torch.Tensor], apart: bool) -> None:
    """Make initializers of the inputs that have the names of `weights`.

    apart: their data stays in the file `<name>.data` beside the model; else in the model, if it has room.
    """
    data = path.with_name(f"{path.name}.data")
    with edited(path) as proto, open(data, "wb") as out:
        inputs = {value.name: value for value in proto.graph.input}
        for name, weight in weights.items():
            if name not in inputs:  # no node reads it
                continue
            one = proto.graph.initializer.add(name=name, dims=weight.shape)
            one.data_type = inputs[name].type.tensor_type.elem_type
            one.data_location = one.EXTERNAL
            offset = _written(weight, out)
            entries = {"location": data.name, "offset": str(offset), "length": str(weight.nbytes)}
            for key, value in entries.items():
                one.external_data.add(key=key, value=value)
            proto.graph.input.remove(inputs[name])
    if not apart and sum(weight.nbytes for weight in weights.values()) < MOST_IN_ONE_FILE:
        take_in(path, data.name)


def _written(weight: torch.Tensor, out: BinaryIO) -> int:
    """Write the bytes of a tensor; returns where they begin."""
    out.write(bytes(-out.tell() % _PAGE))
    offset = out.tell()
    out.write(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return offset
