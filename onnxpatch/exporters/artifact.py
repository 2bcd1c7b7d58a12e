"""`OutFile`: the output file, written beside its target and published after verification.

models/.onnxpatch-x1/model.onnx     written, edited, compared with eager
models/model.onnx                   `keep()` moves it here; without `keep()` nothing is left

A hidden folder is locked as long as its process lives. One that a killed process left is removed by the next export to
the same place.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import tempfile
from pathlib import Path
from types import TracebackType

from onnxpatch.errors import InputError
from onnxpatch.exporters.target import Target, target_of


class OutFile:
    """A context with a `path` to write to. `keep()` moves the file and its external data to the target.

    f: a path; an object with `write`, which gets the bytes; or None, and nothing is kept. Without `keep()`, a file at
    the target stays as it was. notes: from `keep()`, for the report.

    The hidden folder `.onnxpatch-…` of a killed process is removed by the next export to the same place, once the lock
    in it is free.
    """

    def __init__(self, f: object = None) -> None:
        if isinstance(f, io.TextIOBase):
            raise InputError(f"f is a {type(f).__name__}, which takes text: open it in binary mode, or use io.BytesIO")
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
        # External data is named after the file: two attempts in one folder would share it.
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
        # Weights that the exporter wrote apart belong to the file.
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


try:
    import fcntl
except ImportError:  # Windows has no flock: leftover folders are not removed there
    fcntl = None  # type: ignore[assignment]

PREFIX = ".onnxpatch-"


class Lock:
    """A lock in a folder, until `close()` or the end of the process."""

    NAME = ".onnxpatch.lock"

    def __init__(self, folder: Path) -> None:
        self._number = -1
        if fcntl is None:
            return
        made = folder / f"{self.NAME}.new"
        number = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # a file system without locks: the folder is then never taken for a leftover
            os.close(number)
            os.unlink(made)
            return
        os.rename(made, folder / self.NAME)  # locked already when another process sees it
        self._number = number

    def close(self) -> None:
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


def sweep(place: Path) -> None:
    """Remove the folders that killed exports of this user left in `place`, as far as possible."""
    if fcntl is None:
        return
    try:
        found = [entry.path for entry in os.scandir(place) if entry.name.startswith(PREFIX)]
    except OSError:  # a folder that cannot be listed
        return
    for path in found:
        if _is_own_folder(path):
            _remove_if_free(path)


def _is_own_folder(path: str) -> bool:
    """Whether it is a folder of this user, and no link: another user could have put anything there."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _remove_if_free(path: str) -> None:
    try:
        # Somebody else may have put a link or a pipe in its place: neither is followed, nor waited for.
        number = os.open(os.path.join(path, Lock.NAME), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # no lock file: just being made, or not ours
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:  # locked: its process lives
        pass
    finally:
        os.close(number)
