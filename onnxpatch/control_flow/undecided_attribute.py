"""What stands in an attribute that the branches of a forward set differently: any use of it is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Undecided:
    """Stands in an attribute that the branches left different: any use of it is refused."""

    def __init__(self, refuse: Callable[[], Exception]) -> None:
        object.__setattr__(self, "_refuse", refuse)

    def _used(self, *_: Any, **__: Any) -> Any:
        raise object.__getattribute__(self, "_refuse")()

    __getattr__ = __setattr__ = __call__ = __bool__ = __int__ = __float__ = __len__ = __iter__ = __getitem__ = _used
    __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _used
    __lt__ = __le__ = __gt__ = __ge__ = __matmul__ = __rmatmul__ = __neg__ = __contains__ = __setitem__ = _used

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in args:
            if isinstance(value, cls):
                value._used()
        raise TypeError("an attribute that the branches left different was used")
