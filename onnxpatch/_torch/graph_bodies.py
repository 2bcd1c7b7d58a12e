"""Bodies of an `If` or a loop under torch.export: patches of functions act in them, and numbers become nodes.

torch has a function mode off while the mode handles a call, and runs the bodies of `torch.ops.higher_order.cond`,
`scan` and `while_loop` meanwhile. In a body it refuses the constant that `torch.as_tensor(0.5)` makes ("Attempting to
use FunctionalTensor on its own"); `torch.full` is right there. Used is the class `torch._ops.HigherOrderOperator`. If
it moves, patches of functions do not act in the branches and loops that the kit writes under dynamo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_HigherOrder = getattr(torch._ops, "HigherOrderOperator", ())


def bodies_seen_by(mode: TorchFunctionMode, function: object, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a call that a mode passes on, those that are bodies with the mode on while they run."""
    if not isinstance(function, _HigherOrder):
        return args

    def seen(body: Callable[..., object]) -> Callable[..., object]:
        def run(*operands: object) -> object:
            # Outside of `mode`, so that it is on where a stand-in runs.
            with _NumbersAsNodes(), mode:
                return body(*operands)

        return run

    return tuple(seen(one) if callable(one) and not isinstance(one, torch.nn.Module) else one for one in args)


class _NumbersAsNodes(TorchFunctionMode):
    """Makes tensors of Python numbers by torch.full."""

    def __torch_function__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if function in (torch.tensor, torch.as_tensor) and len(args) == 1 and _is_plain(args[0]):
            dtype = options.pop("dtype", None)
            made = _filled(args[0], **options)
            return made if dtype is None else made.to(dtype)
        return function(*args, **options)


def _is_plain(data: object) -> bool:
    if isinstance(data, list | tuple):
        return bool(data) and all(map(_is_plain, data))
    return isinstance(data, bool | int | float)


def _filled(data: Any, **options: Any) -> torch.Tensor:
    if isinstance(data, list | tuple):
        return torch.stack([_filled(one, **options) for one in data])
    return torch.full((), data, **options)
