"""What an exporter writes to stderr, held back until it is known whether the export comes out.

torch prints whole graphs when it refuses a model, though its error has the reason. What is written during an export
that comes out, such as warnings, is shown when it is over.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from onnxpatch._torch.exporters import quiet_exporters


class _HeldBack:
    """Stands for a stream: keeps what one thread writes, and passes on what the others write."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._thread = stream, threading.get_ident()
        self._kept: list[str] = []

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread:
            return int(self._stream.write(text))
        self._kept.append(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def show(self) -> None:
        self._stream.write("".join(self._kept))


@contextlib.contextmanager
def refusals_unprinted() -> Iterator[None]:
    """Inside the block this thread's stderr is kept back: shown at the end, or dropped where the block raises."""
    before = sys.stderr
    held = _HeldBack(before)
    try:
        sys.stderr = held
        with quiet_exporters():
            yield
    finally:
        sys.stderr = before
    held.show()
