"""What is said where the installed torch lacks a private API that the kit relies on: which one, and what is lost.

Importing the kit never fails for it. Names that a file needs while it is imported are replaced by what refuses when it
is used; a name that is looked up later raises AttributeError or ImportError there, which `told` reads.
"""

from __future__ import annotations

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


def told(error: BaseException) -> str | None:
    """A sentence where `error` arose in this folder, over a private API that is not there; None for any other."""
    if isinstance(error, GoneError):
        return str(error)
    if not isinstance(error, AttributeError | ImportError):
        return None
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    file = Path(place.tb_frame.f_code.co_filename) if place is not None else Path()
    if file.parent != _HERE:
        return None
    return next((sentence(api) for api in RELIED_ON if api.used_in == file.stem and not _there(api)), None)


def _there(api: Api) -> bool:
    try:
        find(api.path)
    except GoneError:
        return False
    return True


def _listed(path: str) -> Api:
    return next(api for api in RELIED_ON if api.path == path)
