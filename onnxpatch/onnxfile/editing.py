"""Changing an ONNX file in place, without reading its weights."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto


@contextlib.contextmanager
def edited(file: str | os.PathLike[str]) -> Iterator[ModelProto]:
    """Gives the block the file's ModelProto to change; writes it back at the end, but not if the block raises.

    Weights in a file beside it (external data) are neither read nor written.
    """
    import onnx

    proto = onnx.load(os.fspath(file), load_external_data=False)
    yield proto
    onnx.save(proto, os.fspath(file))
