"""Changing an ONNX file in place, without reading its weights."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def edited(file: str | os.PathLike[str]) -> Iterator[Any]:
    """The ModelProto of a file, written back at the end of the block, not if it raises. External data beside the file
    is not read and stays as it is."""
    import onnx

    proto: Any = onnx.load(os.fspath(file), load_external_data=False)
    yield proto
    onnx.save(proto, os.fspath(file))
