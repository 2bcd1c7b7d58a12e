"""`Replaced`: an attribute of torch that is another one while threads ask for it, each with a value of its own.

A replacement holds for the whole process, and several threads may export. Where an attribute is gone, nothing changes.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from onnxpatch._torch.relied_on import GoneError, find
from onnxpatch.process import Shared, undone

_numbers = itertools.count()


class Replaced:
    """path: dotted, of a module's or a class's attribute. stand_in: makes the other one of what was there."""

    def __init__(self, path: str, stand_in: Callable[[Any], Any]) -> None:
        self._path, self._stand_in = path, stand_in
        self._shared = Shared(self._replaced)
        self._asked: dict[int, tuple[int, Any]] = {}  # by the number of the context: contexts nest

    @contextlib.contextmanager
    def held(self, value: Any = True) -> Iterator[None]:
        """A context in which the attribute is the other one, and `here` has `value` in this thread."""
        number = next(_numbers)
        with self._shared.held(), undone(lambda: self._asked.pop(number, None)):
            self._asked[number] = threading.get_ident(), value
            yield

    def here(self) -> list[Any]:
        """The values that this thread asked with, the outermost context's first."""
        return [value for thread, value in list(self._asked.values()) if thread == threading.get_ident()]

    @contextlib.contextmanager
    def _replaced(self) -> Iterator[None]:
        home, _, name = self._path.rpartition(".")
        try:
            find(self._path)
        except GoneError:
            yield
            return
        owner: Any = find(home)
        before = vars(owner)[name]  # of a class method, the descriptor
        with undone(lambda: setattr(owner, name, before)):
            setattr(owner, name, self._stand_in(before))
            yield
