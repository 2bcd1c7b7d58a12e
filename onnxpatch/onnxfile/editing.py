"""Changing an ONNX file in place, without reading its weights."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from onnxpatch.onnxfile.mapped_weights import is_large, take_in, without_weights

if TYPE_CHECKING:
    from onnx import ModelProto


@contextlib.contextmanager
def edited(file: str | os.PathLike[str]) -> Iterator[ModelProto]:
    """Gives the block the file's ModelProto to change; writes it back at the end, but not if the block raises.

    Weights in a file beside it (external data) are neither read nor written.
    """
    import onnx

    if is_large(file):
        path = Path(file)
        proto, small = onnx.load_from_string(without_weights(path)), path.with_name(f"{path.name}.edited")
        yield proto
        small.write_bytes(proto.SerializeToString())
        # The weights go from the old file into the new one, a piece at a time, and the new one takes its name.
        take_in(small, path.name)
        os.replace(small, path)
        return
    proto = onnx.load(os.fspath(file), load_external_data=False)
    yield proto
    onnx.save(proto, os.fspath(file))
