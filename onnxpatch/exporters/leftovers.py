"""Hidden folders of exports that were killed: each holds a lock while its process lives, and is removed afterwards."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no flock: folders stay there until somebody removes them
    fcntl = None  # type: ignore[assignment]

PREFIX = ".onnxpatch-"


class Lock:
    """Held in a folder as long as the process that made the folder lives, or until `close()`."""

    NAME = ".onnxpatch.lock"

    def __init__(self, folder: Path) -> None:
        self._number = -1
        if fcntl is None:
            return
        made = folder / f"{self.NAME}.new"
        number = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # a file system without locks: without one the folder is never taken for a leftover
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
    """Remove the folders that killed exports of this user left in `place`; what cannot be removed stays."""
    if fcntl is None:
        return
    try:
        found = [entry.path for entry in os.scandir(place) if entry.name.startswith(PREFIX)]
    except OSError:  # a folder that may be written and not listed
        return
    for path in found:
        if _is_own_folder(path):
            _remove_if_free(path)


def _is_own_folder(path: str) -> bool:
    """Not a link, and not a folder of somebody else, who could have put anything there."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _remove_if_free(path: str) -> None:
    try:
        number = os.open(os.path.join(path, Lock.NAME), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # no lock: not finished, or no folder of ours
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:  # its process is alive
        pass
    finally:
        os.close(number)
