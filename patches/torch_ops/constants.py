"""Constants, results and the data of tensors: written in place, taken out of the trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import exporting, op, running_model
from onnxpatch.formulas.symbolic import constant, function_name, keep_constant, traced_from, unrecorded


class _Pairs(torch.nn.Module):
    """Sizes read off `x.data`, and values, also a parameter's; and what is written through it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = x.data.shape
        written = x.clone()
        written.data[:, 0] = 5.0
        written.data.clamp_(min=0)
        pairs = x.view(batch, length // 2, 2).softmax(1) * x.data.mean(1)[:, None, None]
        return pairs * self.scale.data.clone(), written * 2


@op(
    "data",
    name="plain-data",
    why="x.data.shape has the sizes of the example, and x.data its values: constants of the graph; what is written "
    "through it is lost. Under dynamo: Constant lifted_tensor is mutated in the forward method",
    reason="reshaped|broadcast|relative error|is mutated|size_bytes_is_heap_allocated|use detach",
    link="https://github.com/pytorch/pytorch/issues/22097",
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 6), (3, 8), (1, 2)),
    case=_Pairs,
    unchanged=lambda x: x.detach() * 2,
)
def plain_data(tensor: Tensor) -> Tensor:
    """The tensor itself, recorded. Under trace, those of weights and buffers are constants anyway, and what is written
    is stored."""
    if exporting() == "dynamo":
        return tensor.detach()
    running = running_model()
    stored = running is None or any(tensor is own for own in running.tensors.values())
    return NotImplemented if stored or (tensor.requires_grad and tensor.is_leaf) else tensor


def _shifted(x: Tensor) -> tuple[Tensor, Tensor]:
    places = torch.tensor([[0, 1], [-1, 0]] * 2)
    places += torch.arange(4).unsqueeze(1) // 2
    weights = torch.tensor([1.0, 2.0, 3.0])
    first = x[:, :3] * weights
    weights[0] = 5.0
    thrice = torch.tensor([1.0, 2.0, 3.0]).unsqueeze(0)
    thrice.mul_(3)
    return x[:, places], first + weights * thrice


def _counted(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.tensor(2.0)
    scale -= 0.5
    return _shifted(x * scale)


_SIGNS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
_WRITING = frozenset(("__setitem__", "__idiv__", *(f"__i{sign}__" for sign in _SIGNS)))


def writes_in_place(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call writes to its first argument, by its name: `add_`, `__iadd__`, `__setitem__`."""
    name = function_name(function)
    in_place = name in _WRITING or (name.endswith("_") and not name.endswith("__"))
    return in_place and bool(args) and isinstance(args[0], Tensor)


@op(
    "torch.*",
    name="written-constants",
    why="relative error: torch.tensor([...]) that is written to in place (`places += 1`) is a constant of the graph "
    "without a copy: it is written to twice, silently",
    reason="relative error",
    link="https://github.com/pytorch/pytorch/issues/22097",
    calls=writes_in_place,
    exporters=("trace",),
    tries=lambda b: torch.randn(b, 4),
    sizes=(2, 3, 1),
    case=_counted,
    unchanged=lambda x: x.clone().mul_(2),
)
def written_constants(original: Callable[..., Any], *args: Any, **kwargs: Any) -> object:
    """Copies the constant in the graph, then writes."""
    return original(*args, **kwargs) if keep_constant(args[0]) else NotImplemented


def _into(x: Tensor) -> tuple[Tensor, ...]:
    sums, whole = torch.empty_like(x), torch.zeros(x.shape[0], 8)
    torch.add(x, 1, out=sums)
    torch.matmul(x, x[:1].t() * torch.ones(4), out=whole[:, 2:6])
    return sums * 2, whole, torch.exp(x, out=x.clone())


op(
    "torch.*",
    name="results-written-to-out",
    why="add() takes from 3 to 4 positional arguments but 5 were given: out= of any function",
    reason="positional argument|out parameter|Out parameter|Expected",
    calls=lambda function, args, kwargs: isinstance(kwargs.get("out"), Tensor),
    exporters=("trace",),
    tries=lambda b: torch.randn(b, 4),
    case=_into,
    to=lambda original, *args, out, **named: out.copy_(original(*args, **named)),
)


class _Merged(torch.nn.Module):
    """A layer with the weights of two, as networks that are trained with several branches run."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.merged = (torch.nn.Linear(2, 3) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        self.merged.weight.data = self.one.weight + self.other.weight * 2
        return self.merged(x)


def _of_one_kind(function: object, both: tuple[Any, ...], kwargs: object) -> bool:
    return isinstance(both[1], Tensor) and both[0].shape == both[1].shape and both[0].dtype == both[1].dtype


@op(
    "Tensor.data.__set__",
    name="data-of-parameters",
    why="relative error: the forward computes parameters (layer.weight.data = ...), and the file has those from before",
    reason="relative error",
    tries=lambda b: torch.randn(b, 2),
    case=_Merged,
    calls=_of_one_kind,
)
def data_of_parameters(instance: Tensor, value: Tensor) -> None:
    """Gives the parameter its data, and writes the copy of it into the graph."""
    with torch.no_grad():
        if exporting() == "trace":
            unrecorded(lambda: setattr(instance, "data", value.detach().clone()))
        instance[:] = value


# ------------------------------------------------------------------ functions of weights
class _Orthogonal(torch.nn.Module):
    """A square weight, which is a matrix exponential, and a tall one, which is a product of reflections."""

    def __init__(self) -> None:
        super().__init__()
        orthogonal = torch.nn.utils.parametrizations.orthogonal
        self.square, self.tall = orthogonal(torch.nn.Linear(6, 6)), orthogonal(torch.nn.Linear(6, 9))
        for name, stored in self.named_parameters():
            torch.nn.init.normal_(stored) if "square" in name else None

    def forward(self, x: Tensor) -> Tensor:
        return self.tall(torch.tanh(self.square(x)))


@op(
    "torch.matrix_exp",
    "linalg.matrix_exp",
    "householder_product",
    name="orthogonal-weights",
    why="Exporting the operator 'aten::linalg_matrix_exp', 'aten::linalg_householder_product' to ONNX is not "
    "supported; No decompositions registered for aten.linalg_matrix_exp",
    reason="matrix_exp|householder_product|aten::mH",
    link="https://github.com/pytorch/pytorch/issues/107948",
    tries=lambda batch: torch.randn(batch, 6),
    sizes=(3, 5, 1),
    case=_Orthogonal,
    unchanged=lambda x: torch.exp(x),
)
def stored_weight(original: Callable[..., Tensor], input: Tensor, tau: Tensor | None = None) -> Tensor:
    """The result as a constant, if it depends on weights only."""
    tensors = [input] if tau is None else [input, tau]
    running = running_model()
    if running is None or running.model is None:
        return NotImplemented
    if exporting() == "trace" and not all(traced_from(tensor, running.tensors.values()) for tensor in tensors):
        return NotImplemented
    known = [constant(tensor, running.model, running.tensors) for tensor in tensors]
    if any(tensor is None for tensor in known):
        return NotImplemented
    made: Tensor = unrecorded(lambda: original(*known))
    return made
