"""`Target`: where a file is published. Links are followed, mode and owner kept, devices and pipes written to."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxpatch.errors import InputError

_NAME = 60  # characters of a long path in a message


@dataclass(frozen=True)
class Target:
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


def target_of(f: Any) -> Target:
    """The target of a file that is written to `f`. Raises InputError if it cannot be written there."""
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


def _checked(asked: Path) -> Target:
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
    return Target(asked, file)


def _through(asked: Path, mode: int) -> Target:
    if not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        raise InputError(f"{asked} is a disk or a socket, and no file: choose another place")
    if not os.access(asked, os.W_OK):
        raise InputError(f"{asked} cannot be written: choose another place")
    return Target(asked, Path("model.onnx"), through=True)


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
