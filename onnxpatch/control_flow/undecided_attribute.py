"""The value of an attribute that the branches of a forward set to different values: any use of it raises."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NoReturn


class UndecidedAttribute:
    """Raises `refuse()` on any use: an attribute of it, arithmetic, comparison, a torch call."""

    def __init__(self, refuse: Callable[[], Exception]) -> None:
        object.__setattr__(self, "_refuse", refuse)  # __setattr__ itself refuses

    def _raise(self, *_: object, **__: object) -> NoReturn:
        raise object.__getattribute__(self, "_refuse")()

    # Python looks operators up on the class, so that each needs a method of its own.
    __getattr__ = __setattr__ = __call__ = __bool__ = __int__ = __float__ = __len__ = __iter__ = __getitem__ = _raise
    __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _raise
    __lt__ = __le__ = __gt__ = __ge__ = __matmul__ = __rmatmul__ = __neg__ = __contains__ = __setitem__ = _raise

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., object],
        types: Collection[type],
        args: Sequence[object] = (),
        kwargs: object = None,
    ) -> NoReturn:
        for value in args:
            if isinstance(value, cls):
                value._raise()
        raise TypeError("an attribute that the branches set to different values was used")
