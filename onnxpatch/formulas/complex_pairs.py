"""`Pair`: a complex tensor in two real ones, which takes part in torch calls like a tensor.

    torch.view_as_complex(x) * rotation        both factors are Pairs while an exporter runs
    Pair.__mul__ -> torch.mul of two Pairs     answered by `complex_calls`, out of `complex_arithmetic`

ONNX has no complex numbers. A Pair passes each torch call to a function registered by `answer_with`: so this file
does not import the tables and the arithmetic, which import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from onnxpatch._torch import exporting
from onnxpatch._torch.function_modes import unseen


class _Answers:
    """The registered functions; `complex_calls` registers them when it is imported."""

    call: Callable[..., Any]
    properties: Mapping[str, Callable[[Any], Any]]


_answers = _Answers()


def answer_with(call: Callable[..., object], properties: Mapping[str, Callable[[Any], Any]]) -> None:
    """Register `call(function, *args, **kwargs)` for torch calls on Pairs, and functions for their properties."""
    _answers.call, _answers.properties = call, properties


class Pair:
    """A complex tensor as two real ones of one shape, `real` and `imag`. Torch functions take it like a tensor."""

    def __init__(self, real: torch.Tensor, imag: torch.Tensor) -> None:
        self.real = real
        self.imag = imag

    @staticmethod
    def of(value: object) -> Pair:
        """A Pair of a tensor or a number; a Pair is returned as it is. A stored complex tensor gives two constants."""
        if isinstance(value, Pair):
            return value
        if isinstance(value, complex):
            return Pair(torch.tensor(value.real), torch.tensor(value.imag))
        if not isinstance(value, torch.Tensor):
            # 0-d parts, which broadcast.
            return Pair(torch.as_tensor(value), torch.tensor(0.0))
        if not value.is_complex():
            return Pair(value, torch.zeros_like(value))
        return _stored(value)

    def onnxpatch_output(self) -> torch.Tensor:
        """The output for the caller of the model: complex in eager, else real, with both parts on a last axis of 2.

        That is torch.view_as_real's layout: no ONNX operator makes a complex tensor.
        """
        return torch.complex(self.real, self.imag) if exporting() is None else view_as_real(self)

    @classmethod
    def __torch_function__(cls, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        return _answers.call(function, *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        # Not dunder names: libraries ask with them what an object can do (`__array__`, `__deepcopy__`), and a Pair
        # cannot.
        if name.startswith("__") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"a complex tensor has no attribute {name!r} while it is exported")
        function = getattr(torch.Tensor, name)
        if name in _answers.properties:
            return _answers.properties[name](self)
        return lambda *args, **kwargs: _answers.call(function, self, *args, **kwargs)

    def __getitem__(self, index: Any) -> Pair:
        return Pair(self.real[index], self.imag[index])

    def __len__(self) -> int:
        return len(self.real)

    def __iter__(self) -> Any:
        return map(Pair, self.real, self.imag)

    def __add__(self, other: object) -> Pair:
        return _answers.call(torch.add, self, other)

    def __sub__(self, other: object) -> Pair:
        return _answers.call(torch.sub, self, other)

    def __rsub__(self, other: object) -> Pair:
        return _answers.call(torch.sub, other, self)

    def __mul__(self, other: object) -> Pair:
        return _answers.call(torch.mul, self, other)

    def __truediv__(self, other: object) -> Pair:
        return _answers.call(torch.div, self, other)

    def __rtruediv__(self, other: object) -> Pair:
        return _answers.call(torch.div, other, self)

    def __matmul__(self, other: object) -> Pair:
        return _answers.call(torch.matmul, self, other)

    def __rmatmul__(self, other: object) -> Pair:
        return _answers.call(torch.matmul, other, self)

    def __pow__(self, exponent: object) -> Pair:
        return _answers.call(torch.pow, self, exponent)

    def __neg__(self) -> Pair:
        return Pair(-self.real, -self.imag)

    def __abs__(self) -> torch.Tensor:
        return _answers.call(torch.abs, self)

    __radd__, __rmul__ = __add__, __mul__


def _stored(value: torch.Tensor) -> Pair:
    with unseen():  # these calls must not go through the patches' mode: they would come back here
        if type(value) in (torch.Tensor, torch.nn.Parameter):
            # Through NumPy, so that the TorchScript tracer records two constants and no complex operator.
            numbers = value.detach().cpu().numpy()
            parts = (np.asarray(part, order="C") for part in (numbers.real, numbers.imag))
            return Pair(*(torch.from_numpy(part).to(value.device) for part in parts))
        # A fake tensor, under torch.export, has no numbers to read. aten.view_as_real has an ONNX form there.
        both = torch.ops.aten.view_as_real.default(value)
    return Pair(both[..., 0], both[..., 1])


def view_as_complex(a: torch.Tensor) -> Pair:
    return Pair(a[..., 0], a[..., 1])


def view_as_real(a: object) -> torch.Tensor:
    a = Pair.of(a)
    return torch.stack(torch.broadcast_tensors(a.real, a.imag), dim=-1)
