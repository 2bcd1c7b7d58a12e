"""`OutFile`: the output file, written beside its target and published after verification.

models/.onnxpatch-x1/model.onnx     written, edited, compared with eager
models/model.onnx                   `keep()` moves it here; without `keep()` nothing is left

A hidden folder is locked as long as its process lives. One that a killed process left is removed by the next export to
the same place. `_Target` is where the file is published: links are followed, mode and owner kept, devices and pipes
written to.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from onnxpatch.errors import InputError, cut_off, error_chain

_NAME = 60  # characters of a long path in a message
_NO_ROOM = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
PREFIX = ".onnxpatch-"


@dataclass(frozen=True)
class _Target:
    """asked: the path as given. file: what it leads to. through: whether that is a device or a pipe."""

    asked: Path
    file: Path
    through: bool = False

    def take(self, made: Path, others: Sequence[Path]) -> list[str]:
        """Move `made` and the files that belong to it into place. Returns notes for a report; raises InputError."""
        try:
            return self._written_through(made, others) if self.through else self._replaced(made, others)
        except OSError as error:
            raise InputError(f"{self.asked} cannot be written ({error.strerror}): choose another place") from None

    def _written_through(self, made: Path, others: Sequence[Path]) -> list[str]:
        if others:
            raise InputError(
                f"{self.asked} is a device or a pipe, which takes one file, and the weights are in another one "
                f"({others[0].name}): choose another place"
            )
        try:
            # Without O_NONBLOCK, opening a pipe that nobody reads would block.
            number = os.open(self.asked, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise InputError(f"nobody reads from the pipe {self.asked}: start the reader first") from None
            raise
        # The file is larger than a pipe takes at once: from here on, writing may wait.
        os.set_blocking(number, True)
        with open(number, "wb") as out, open(made, "rb") as source:
            shutil.copyfileobj(source, out)
        return []

    def _replaced(self, made: Path, others: Sequence[Path]) -> list[str]:
        before = _status(self.file)
        notes = []
        if before is not None and before.st_nlink > 1:
            more = before.st_nlink - 1
            notes.append(
                f"{self.asked} is a new file: {more} other {'names' if more > 1 else 'name'} (hard links) of the file "
                "that was there still lead to the old one"
            )
        if others and self.file.parent != Path(os.path.realpath(self.asked.parent)):
            notes.append(f"{self.asked} is a link: the weights are beside the file it leads to, in {self.file.parent}")
        for one in others:
            place = Path(os.path.realpath(self.file.parent / one.name))
            _as_before(one, _status(place) or before)
            os.replace(one, place)
        _as_before(made, before)
        os.replace(made, self.file)  # the model last: it refers to the others
        return notes


def target_of(f: Any) -> _Target:
    """The target of a file that is written to `f`. Raises InputError if it cannot be; called before any work."""
    try:
        asked = Path(f)
        str(asked).encode()
    except TypeError:
        raise InputError(f"f must be a path, a binary file object or None, not {type(f).__name__}") from None
    except UnicodeEncodeError:
        raise InputError(
            f"{str(f)[:_NAME]!r} is not valid UTF-8, which torch.onnx asks for: choose another name"
        ) from None
    if os.fspath(f).endswith(os.sep):
        raise InputError(f"{str(f)[:_NAME]} names a folder: give the name of a file in it")
    try:
        return _checked(asked)
    except OSError as error:  # a name that no file system accepts
        shown = str(asked) if len(str(asked)) <= _NAME else f"{str(asked)[:_NAME]}…"
        raise InputError(f"{shown}: {error.strerror}: choose another name") from None
    except ValueError as error:  # a null character in it
        raise InputError(f"{str(asked)[:_NAME]!r}: {error}: choose another name") from None


def _checked(asked: Path) -> _Target:
    found = _status(asked)  # of the file that a link leads to
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise InputError(f"{asked} is a folder: give the name of a file in it")
    if found is not None and not stat.S_ISREG(found.st_mode):
        return _through(asked, found.st_mode)
    file = Path(os.path.realpath(asked)) if os.path.islink(asked) else asked
    if os.path.islink(file):
        raise InputError(f"{asked} is a link that leads to itself: choose another place")
    if not file.parent.is_dir():
        raise InputError(f"{file.parent} does not exist: make the folder first")
    if not os.access(file.parent, os.W_OK) or (found is not None and not os.access(file, os.W_OK)):
        raise InputError(f"{asked} cannot be written: choose another place")
    return _Target(asked, file)


def _through(asked: Path, mode: int) -> _Target:
    if not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        raise InputError(f"{asked} is a disk or a socket, and no file: choose another place")
    if not os.access(asked, os.W_OK):
        raise InputError(f"{asked} cannot be written: choose another place")
    return _Target(asked, Path("model.onnx"), through=True)


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):  # reported below
            return None
        raise


def _as_before(made: Path, before: os.stat_result | None) -> None:
    """Give a new file the mode, and if permitted the owner, of the file that it replaces."""
    if before is None:
        return
    if hasattr(os, "chown"):
        # One by one: a group of the user's own may be set where another owner may not.
        for owner in ((before.st_uid, -1), (-1, before.st_gid)):
            with contextlib.suppress(OSError):
                os.chown(made, *owner)
    # After chown, which may clear bits of the mode.
    os.chmod(made, stat.S_IMODE(before.st_mode))


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
        self._lock: _Lock | None = None

    def __enter__(self) -> OutFile:
        self._handled = sys.exc_info()[1]  # by the caller: it may be another full disk
        # In the same folder, since a move within one file system is atomic. /dev, say, is no place for a folder.
        beside = self._target.file.parent if self._target and not self._target.through else None
        place = str(beside or tempfile.gettempdir())
        try:
            sweep(Path(place))
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
            self._lock = _Lock(self._folder)
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
        others = [one for one in made.parent.iterdir() if one != made and one.is_file() and one.name != _Lock.NAME]
        self.notes += self._target.take(made, others)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._drop()
        if error is None:
            return
        cut_off(error, self._handled)
        if (full := without_room(error)) is not None and self._folder is not None:
            raise InputError(
                f"the file cannot be written in {self._folder.parent} ({full.strerror}): choose another place"
            ) from None

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


try:
    import fcntl
except ImportError:  # Windows has no flock: leftover folders are not removed there
    fcntl = None  # type: ignore[assignment]


def without_room(error: BaseException) -> OSError | None:
    """What the system said if an error came from a full disk, a quota, or a limit of the size of files."""
    chain = [one for one in error_chain(error) if isinstance(one, OSError)]
    return next((one for one in chain if one.errno in _NO_ROOM), None)


class _Lock:
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
        number = os.open(os.path.join(path, _Lock.NAME), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # no lock file: just being made, or not ours
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:  # locked: its process lives
        pass
    finally:
        os.close(number)
