"""Models that ask `type(layer) is nn.Linear`, which a patched layer, of a generated class, would answer with no.

In the modules that define such a model, `type` gives the written class while the model runs, in eager too. What asks
`layer.__class__` gets it from the generated class itself.
"""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Iterable, Iterator
from typing import Any

from onnxpatch.patching.generated import class_before


def written_type(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    """What stands for a call of `type`: `type(layer)` is the class as it was written."""
    return class_before(type(args[0])) if len(args) == 1 and not kwargs else NotImplemented


def ask_for_types(modules: Iterable[types.ModuleType]) -> bool:
    """Whether code of these modules calls `type`."""
    return any(_asks(code) for module in modules for code in _code(module))


def _code(module: types.ModuleType) -> Iterator[types.CodeType]:
    """The code of what is written in the module: its functions, and the methods of its classes."""
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) == module.__name__:
            for one in (value, *vars(value).values()) if inspect.isclass(value) else (value,):
                function = inspect.unwrap(getattr(one, "__func__", one)) if callable(one) else one
                if inspect.isfunction(function):
                    yield function.__code__


@functools.lru_cache(maxsize=4096)
def _asks(code: types.CodeType) -> bool:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    if any(_asks(one) for one in inner):
        return True
    # Also the name of an attribute (`x.type(torch.int64)`): then the instruction says which it is.
    return "type" in code.co_names and any(
        step.argval == "type" and step.opname in ("LOAD_GLOBAL", "LOAD_NAME") for step in dis.get_instructions(code)
    )
