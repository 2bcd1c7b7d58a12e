"""Answers `type(layer)` of a patched layer with the class that the user wrote.

`type(layer) is nn.Linear` stays true by a replacement of the name `type` in the Python modules that define such a
model, while it runs, in eager too.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Iterable, Iterator

from onnxpatch.patching.generated import class_before


def written_type(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Replaces a call of `type`: `type(layer)` returns the class that the user wrote."""
    return class_before(type(args[0])) if len(args) == 1 and not kwargs else NotImplemented


def ask_for_types(modules: Iterable[types.ModuleType]) -> bool:
    """Whether code of these modules calls `type`."""
    return any(_asks(code) for module in modules for code in _code(module))


def _code(module: types.ModuleType) -> Iterator[types.CodeType]:
    """The code objects of the functions and methods that are defined in the module."""
    for value in list(vars(module).values()):
        # `type` is replaced in these modules only: imported code looks the name up elsewhere.
        if getattr(value, "__module__", None) == module.__name__:
            for one in (value, *vars(value).values()) if inspect.isclass(value) else (value,):
                function = inspect.unwrap(getattr(one, "__func__", one)) if callable(one) else one
                if inspect.isfunction(function):
                    yield function.__code__


# By code object, which never changes: the same modules are asked again for every model that they define.
@functools.lru_cache(maxsize=4096)
def _asks(code: types.CodeType) -> bool:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    if any(_asks(one) for one in inner):
        return True
    # `x.type(torch.int64)` has the name in co_names too; only the instruction shows that it is an attribute.
    return "type" in code.co_names and any(
        step.argval == "type" and step.opname in ("LOAD_GLOBAL", "LOAD_NAME") for step in dis.get_instructions(code)
    )
