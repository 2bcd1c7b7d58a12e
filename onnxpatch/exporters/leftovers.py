"""Removes the hidden folders of exports that were killed. A folder is locked as long as its process lives."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

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
