"""`OutFile`: the output file, written beside its target and published after verification.

models/.onnxpatch-x1/model.onnx     written, edited, compared with eager
models/model.onnx                   `keep()` moves it here; without `keep()` nothing is left
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from onnxpatch.errors import InputError
from onnxpatch.exporters.leftovers import PREFIX, Lock, sweep
from onnxpatch.exporters.target import Target, target_of


class OutFile:
    """A context with a `path` to write to. `keep()` moves the file and its external data to the target.

    f: a path; an object with `write`, which gets the bytes; or None, and nothing is kept. Without `keep()`, a file at
    the target stays as it was. notes: from `keep()`, for the report.

    The hidden folder `.onnxpatch-…` of a killed process is removed by the next export to the same place, once the lock
    in it is free.
    """

    def __init__(self, f: object = None) -> None:
        self._target = None if f is None or hasattr(f, "write") else target_of(f)
        self._stream = f if hasattr(f, "write") else None
        self.name = str(self._target.asked) if self._target else ""
        self.notes: list[str] = []
        self._folder: Path | None = None
        self._lock: Lock | None = None

    def __enter__(self) -> OutFile:
        # In the same folder, since a move within one file system is atomic. /dev, say, is no place for a folder.
        beside = self._target.file.parent if self._target and not self._target.through else None
        place = str(beside or tempfile.gettempdir())
        try:
            sweep(Path(place))
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
            self._lock = Lock(self._folder)
        except OSError as error:  # a read-only or full file system, which access() does not notice
            self._drop()
            raise InputError(
                f"nothing can be written in {beside or 'the temporary folder'} ({error.strerror}): choose another place"
            ) from None
        # Python calls no __exit__ where __enter__ has raised.
        except BaseException:
            self._drop()
            raise
        return self

    @property
    def path(self) -> Path:
        """Where to write. It has the target's file name, since external data is named after it."""
        assert self._folder is not None
        return self._folder / (self._target.file.name if self._target else "model.onnx")

    def another(self) -> Path:
        """Another path to write to, in a folder of its own, if several files are made and one is kept."""
        assert self._folder is not None
        return Path(tempfile.mkdtemp(dir=self._folder)) / self.path.name

    def keep(self, path: Path | None = None) -> None:
        """Move the file to the target. path: one of those from `another()`; default: `self.path`.

        Raises InputError if it cannot be written there.
        """
        made = path or self.path
        if self._stream is not None:
            with open(made, "rb") as source:
                shutil.copyfileobj(source, self._stream)
        if self._target is None:
            return
        others = [one for one in made.parent.iterdir() if one != made and one.is_file() and one.name != Lock.NAME]
        self.notes += self._target.take(made, others)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._drop()

    def _drop(self) -> None:
        if self._lock is not None:
            self._lock.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def write_text(file: str | os.PathLike[str], text: str) -> None:
    """Write text to `file`, whole or not at all. Raises InputError if it cannot be written."""
    with OutFile(file) as out:
        out.path.write_text(text, encoding="utf-8")
        out.keep()


def writable(f: object) -> Target:
    """The target of `f`. Raises InputError if nothing can be written there; called before any work."""
    return target_of(f)
