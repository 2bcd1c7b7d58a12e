"""The file to be: written beside its place, edited there, moved there once it is proven, dropped otherwise."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from onnxpatch.errors import InputError


class OutFile:
    """`path` to write to while in the context; `keep()` moves it (and its external data) to the target.

    f: a path, an object with `write` (given the bytes), or None (nothing is kept). Without `keep()` nothing is left,
    and a file that was at the target stays as it was.
    """

    def __init__(self, f: Any = None) -> None:
        self._target = None if f is None or hasattr(f, "write") else writable(f)
        self._stream = f if hasattr(f, "write") else None
        self.name = str(self._target or "")
        self._folder: Path | None = None

    def __enter__(self) -> OutFile:
        beside = str(self._target.parent) if self._target else None
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=".onnxpatch-", dir=beside))
        except OSError as error:  # a read-only file system, or one that is full: access() does not know
            raise InputError(
                f"nothing can be written in {beside or 'the temporary folder'} ({error.strerror}): choose another place"
            ) from None
        return self

    @property
    def path(self) -> Path:
        """Where to write: the target's own file name, since external data is named after it."""
        assert self._folder is not None
        return self._folder / (self._target.name if self._target else "model.onnx")

    def keep(self) -> None:
        if self._stream is not None:
            self._stream.write(self.path.read_bytes())
        if self._target is None:
            return
        others = [one for one in self.path.parent.iterdir() if one != self.path]
        for one in (*others, self.path):  # the model last: it names the others
            os.replace(one, self._target.parent / one.name)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def writable(f: Any) -> Path:
    """`f` as a path that a file can be written to. Raises InputError that says why none can."""
    try:
        path = Path(f)
    except TypeError:
        raise InputError(f"f must be a path, a binary file object or None, not {type(f).__name__}") from None
    if path.is_dir():
        raise InputError(f"{path} is a folder: give the name of a file in it")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} does not exist: make the folder first")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise InputError(f"{path} cannot be written: choose another place")
    return path
