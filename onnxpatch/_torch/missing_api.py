"""Explains failures over a private API that the installed torch does not have: which API, and what fails without it.

Importing onnxpatch must work without it. A name that a file of this folder needs at import is replaced by a class or
module that raises GoneError when it is used. A name that is looked up later raises AttributeError or ImportError there;
`explain` recognizes such errors.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from onnxpatch._torch.relied_on import RELIED_ON, Api, GoneError, find, sentence

_HERE = Path(__file__).parent


def gone_class(path: str) -> Any:
    """A class to derive from in place of one that is gone. Its constructor raises GoneError."""

    class Gone:
        def __init__(self, *args: object, **kwargs: object) -> None:
            raise GoneError(sentence(_listed(path)))

    return Gone


class GoneModule:
    """In place of a module that is gone: any attribute of it raises GoneError."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        raise GoneError(sentence(_listed(self._path)))


def explain(error: BaseException) -> str | None:
    """A sentence about the missing API, if `error` arose in this folder over one that is gone; None for others."""
    if isinstance(error, GoneError):
        return str(error)
    if not isinstance(error, AttributeError | ImportError):
        return None
    # Such an error may come from anywhere: only one that was raised in this folder is about these APIs.
    frames = traceback.walk_tb(error.__traceback__)
    if not any(Path(frame.f_code.co_filename).parent == _HERE for frame, _ in frames):
        return None
    # The error has the last part of a path only, in which several APIs may end.
    named = (api for api in RELIED_ON if api.path.rpartition(".")[2] in str(error))
    return next((sentence(api) for api in named if not _there(api)), None)


def _there(api: Api) -> bool:
    try:
        find(api.path)
    except GoneError:
        return False
    return True


def _listed(path: str) -> Api:
    return next(api for api in RELIED_ON if api.path == path)
