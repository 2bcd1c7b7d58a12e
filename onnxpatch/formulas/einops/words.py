"""einops' own errors about a pattern or a size, with the path of the module that called it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeVar

import torch

from onnxpatch.formulas.nodes import numbers
from onnxpatch.settings import module_path

Answer = TypeVar("Answer")


def where(module: torch.nn.Module | None = None) -> str:
    """The path of the module (default: of the module whose code runs), as "module 'encoder.patch'"."""
    found = module if module is not None else _caller()
    if found is None:
        return "outside any module"
    path = module_path(found)
    return f"module {path!r} ({type(found).__name__})" if path else f"module {type(found).__name__}"


def _caller() -> torch.nn.Module | None:
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            return owner
        frame = frame.f_back
    return None


def refuse(
    shape: Sequence[object],
    pattern: str,
    lengths: Mapping[str, object],
    reduction: str,
    module: torch.nn.Module | None = None,
) -> NoReturn:
    """Raise einops' error for an input of this shape, with the module's path.

    reduction: "rearrange", "repeat" or the name of a reduction.
    Raises EinopsError.
    """
    import einops
    import numpy as np

    given = dict(zip(lengths, numbers(list(lengths.values())), strict=True))
    # einops raises by the shape alone. This array has strides of 0, so no memory is taken, however large the shape is.
    empty = np.broadcast_to(np.zeros(()), [size if isinstance(size, int) else 1 for size in numbers(shape)])
    try:
        if reduction in ("rearrange", "repeat"):
            getattr(einops, reduction)(empty, pattern, **given)
        else:
            einops.reduce(empty, pattern, reduction, **given)
    except einops.EinopsError as error:
        raise einops.EinopsError(f"{error}\n In {where(module)}.") from None
    # einops accepted the shape with 1 for each dynamic size, and yet there is no plan for it.
    raise einops.EinopsError(f"{reduction} {pattern!r} does not fit shape {list(shape)}.\n In {where(module)}.")


def explained(call: Callable[[], Answer]) -> Answer:
    """The result of a call of einops. An error keeps its type and text, and gets the path of the module."""
    from einops import EinopsError

    try:
        return call()
    except (EinopsError, NotImplementedError, TypeError, ValueError) as error:
        # A subclass may not be made from one text.
        if type(error) not in (EinopsError, NotImplementedError, TypeError, ValueError):
            raise
        raise type(error)(f"{error}\n In {where()}.") from None
