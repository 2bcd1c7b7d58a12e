"""What a forward leaves behind in its module's attributes: put back between paths, and told apart from them."""

from __future__ import annotations

from typing import Any

import torch

_MISSING = object()
_SKIPPED = frozenset({"_parameters", "_buffers", "_modules"})
Key = tuple[int, str]


class Attributes:
    """The attributes and buffers of a module and of everything under it, as they were."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._modules = list(module.modules())
        self._before = [(dict(vars(m)), dict(m._buffers)) for m in self._modules]

    def changes(self) -> dict[Key, Any]:
        """(module number, name) of every attribute or buffer bound to something else since; buffers as `_buffers.x`."""
        found: dict[Key, Any] = {}
        for number, (module, (names, buffers)) in enumerate(zip(self._modules, self._before, strict=True)):
            found |= {(number, name): value for name, value in _differing(names, vars(module))}
            found |= {(number, "_buffers." + name): value for name, value in _differing(buffers, module._buffers)}
        return found

    def restore(self) -> None:
        """Bind everything as it was."""
        for module, (names, buffers) in zip(self._modules, self._before, strict=True):
            _put_back(vars(module), names)
            _put_back(module._buffers, buffers)

    def put(self, key: Key, value: Any) -> None:
        """Bind one attribute."""
        number, name = key
        vars(self._modules[number])[name] = value

    def module(self, key: Key) -> torch.nn.Module:
        return self._modules[key[0]]

    def before(self, key: Key) -> Any:
        return self._before[key[0]][0].get(key[1], _MISSING)


def _differing(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any]]:
    changed = [(name, value) for name, value in now.items() if before.get(name, _MISSING) is not value]
    return [(n, v) for n, v in changed if n not in _SKIPPED] + [(n, _MISSING) for n in before if n not in now]


def _put_back(now: dict[str, Any], before: dict[str, Any]) -> None:
    if now.keys() == before.keys() and all(now[name] is value for name, value in before.items()):
        return
    now.clear()
    now.update(before)


class Undecided:
    """Stands in an attribute that the branches left different: any use of it is refused."""

    def __init__(self, refuse: Any) -> None:
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
