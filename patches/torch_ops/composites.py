"""Functions without a TorchScript translation, composed of functions that have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnxpatch import missing, op
from onnxpatch.formulas import matrices as by_matrices
from onnxpatch.formulas.calls import call_of
from onnxpatch.formulas.elementary import cut_off, reduced
from onnxpatch.formulas.symbolic import function_name, same_size, symbolic
from onnxpatch.patching.proof import matrices

Tensor = torch.Tensor


def diff(x: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    parts = [part for part in (prepend, x, append) if part is not None]
    x = torch.cat(parts, dim) if len(parts) > 1 else x
    for _ in range(n):
        rest = x.shape[dim] - 1
        # narrow and not a slice: it takes a dynamic length, and any axis.
        x = x.narrow(dim, 1, rest) - x.narrow(dim, 0, rest)
    return x


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    rest = y.shape[dim] - 1
    heights = (y.narrow(dim, 1, rest) + y.narrow(dim, 0, rest)) / 2
    return (heights * (dx if x is None else diff(x, dim=-1 if x.dim() == 1 else dim))).sum(dim)


def nanmean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    known = ~torch.isnan(x)
    axes = tuple(range(x.dim())) if dim is None else dim
    total = torch.where(known, x, torch.zeros_like(x)).sum(axes, keepdim=keepdim)
    return total / known.to(x.dtype).sum(axes, keepdim=keepdim)


def nansum(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    known = torch.where(torch.isnan(x), torch.zeros_like(x), x) if x.is_floating_point() else x
    return known.sum(*args, **kwargs)


def outer(x: Tensor, y: Tensor) -> Tensor:
    # onnxruntime's product of matrices is ten times as fast as Mul along a short last axis.
    return x[:, None] @ y[None] if x.dtype == y.dtype == torch.float32 else x[:, None] * y


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    mixed = torch.einsum("...i,oij,...j->...o", x, weight, y)
    return mixed if bias is None else mixed + bias


def addcdiv(x: Tensor, numerator: Tensor, denominator: Tensor, *, value: float = 1) -> Tensor:
    return x + value * (numerator / denominator)


def float_power(x: Any, exponent: Any) -> Tensor:
    # float64, whatever came in: that is what float_power is for.
    return torch.pow(torch.as_tensor(x).double(), exponent)


def logspace(start: Any, end: Any, steps: Any, base: float = 10.0, **kwargs: Any) -> Tensor:
    return torch.pow(base, torch.linspace(start, end, steps, **kwargs))


def l1_loss(x: Tensor, y: Tensor, size_average: object = None, reduce: object = None, reduction: str = "mean") -> Any:
    if size_average is not None or reduce is not None:
        return NotImplemented
    return reduced((x - y).abs(), reduction)


def isclose(x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    # Equal infinities are close, though their difference is NaN; nothing else is close to an infinity.
    near = (x == y) | (((x - y).abs() <= atol + rtol * y.abs()) & torch.isfinite(y))
    return near | (torch.isnan(x) & torch.isnan(y)) if equal_nan else near


def unflatten(x: Tensor, dim: Any, sizes: Any) -> Tensor:
    """`unflatten` as a reshape: the exporter silently makes the traced shape of aten::unflatten static."""
    axis = dim % x.dim()
    return x.reshape([*x.shape[:axis], *sizes, *x.shape[axis + 1 :]])


# More blocks than this in a window are more nodes than gathering by indices is worth.
_MOST_BLOCKS = 16


def unfold(x: Tensor, dimension: int, size: Any, step: Any) -> Tensor:
    """A window is ceil(size / step) blocks of `step` entries: as many slices, where a Gather would copy each entry."""
    axis, last = dimension % x.dim(), x.dim() - 1
    x = x.movedim(axis, last)  # the exporter's movedim is wrong for negative ones
    count: Any = (x.shape[-1] - size) // step + 1
    dynamic = symbolic(size) or symbolic(step)
    steps = (1 if same_size(size, step) else None) if dynamic else -(-size // step)
    if steps is None or steps > _MOST_BLOCKS:
        places = torch.arange(count, device=x.device)[:, None] * step + torch.arange(size, device=x.device)
        windows = x.index_select(-1, places.flatten()).unflatten(-1, (count, size))
    else:
        # What is added is the last block of the last window.
        x = x if steps == 1 or size % step == 0 else torch.nn.functional.pad(x, (0, step))
        blocks = x.narrow(-1, 0, (count + steps - 1) * step).unflatten(-1, (-1, step))
        windows = torch.cat([blocks.narrow(-2, start, count) for start in range(steps)], -1)[..., :size]
    return windows.movedim(last, axis)


def roll(x: Tensor, shifts: Any, dims: object = None) -> object:
    """Without axes, all elements in one row are rolled. The exporter has the form with axes."""
    if dims is not None and dims != ():
        return NotImplemented
    return x.flatten().roll(shifts[0] if isinstance(shifts, tuple | list) else shifts, 0).reshape(x.shape)


def _composed(x: Tensor) -> tuple[Tensor, ...]:
    square = torch.diag_embed(x.diff(dim=1)).mT * torch.rot90(x[:, 1:], 2, (1, 2)).unsqueeze(-2)
    spread = torch.corrcoef(x[0].T) + torch.block_diag(x[0, :2, :2], x[0, :2, :4].T @ x[0, :2, :4])
    spread = spread + torch.diag(torch.diag(x[0], 1)[:3], -3)
    spread = spread + torch.fliplr(spread.roll(1)) * spread.flipud()
    windows = torch.cat((x.unfold(1, 3, 2), x.unfold(-2, 4, 1)[:, :3, ..., :3]), -1)
    chosen = torch.take_along_dim(x, x.argsort(1), 1) + torch.special.exp2(x) * torch.special.sinc(x)
    return square, spread, windows, chosen, torch.kron(x[0], x[0, :2]), torch.outer(torch.arange(x.shape[0]), x[0, 0])


_MATRICES = (
    "rot90", "diag", "diag_embed", "diagflat", "trace", "block_diag", "cartesian_prod", "kron", "take_along_dim",
    "matrix_power", "cov", "corrcoef", "inner", "renorm", "chain_matmul",
)  # fmt: skip
_OWN = (
    diff, trapezoid, nanmean, nansum, channel_shuffle, bilinear, roll, addcdiv, float_power, logspace, isclose, l1_loss,
    unflatten, unfold, outer,
)  # fmt: skip
COMPOSITES: dict[str, Callable[..., Any]] = {
    **{name: getattr(by_matrices, name) for name in _MATRICES},
    **{one.__name__: one for one in _OWN},
    "trapz": trapezoid,
    "ger": outer,
    "fliplr": lambda x: x.flip(1),
    "flipud": lambda x: x.flip(0),
    "linalg_matrix_power": by_matrices.matrix_power,
    "linalg_multi_dot": by_matrices.multi_dot,
    "_threshold": lambda x, threshold, value, inplace=False: torch.where(x <= threshold, torch.full_like(x, value), x),
    "mT": by_matrices.transposed,
    "mH": by_matrices.transposed,
    "adjoint": by_matrices.transposed,
    "deg2rad": lambda x: x * (torch.pi / 180),
    "rad2deg": lambda x: x * (180 / torch.pi),
    "sinc": lambda x: torch.where(x == 0, torch.ones_like(x), torch.sin(torch.pi * x) / (torch.pi * x)),
    "exp2": lambda x: torch.pow(2.0, x),
    "sgn": torch.sign,
    "frac": lambda x: x - cut_off(x),
    "trunc": cut_off,
    "xlogy": lambda x, y: torch.where(x == 0, torch.zeros_like(x), x * torch.log(y)),
    "vdot": torch.dot,
    "logit": lambda x, eps=None: torch.log((c := x if eps is None else x.clamp(eps, 1 - eps)) / (1 - c)),
}
"""By the name that torch gives the function."""


def composed(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether the call is one of these functions."""
    return _name(function) in COMPOSITES


def _name(function: Any) -> str:
    # Tensor.unfold and F.unfold have one name and are different functions.
    if getattr(function, "__module__", None) == "torch.nn.functional" and function.__name__ == "unfold":
        return "im2col"
    return function_name(function).removeprefix("special_")


@op(
    "torch.*",
    name="composites",
    why="UnsupportedOperatorError: Exporting the operator 'aten::diff', 'aten::mT', 'aten::unfold', ... to ONNX",
    reason="aten::diff",
    link="https://github.com/pytorch/pytorch/issues/126972",
    exporters=("trace",),
    calls=composed,
    tries=lambda b: torch.randn(b, 7, 6),
    sizes=(2, 3),
    case=_composed,
    unchanged=lambda x: x.abs(),
)
def compose(original: Callable[..., torch.Tensor], *args: object, **kwargs: object) -> object:
    """Computes the function from others."""
    composite = COMPOSITES[_name(original)]
    # The composites name their arguments as they like: the call is passed on by torch's own signature.
    call = call_of(composite, original, args, kwargs, takes_original=False)
    return NotImplemented if call is None else composite(*call[0], **call[1])


def _tiled(x: Tensor) -> tuple[Tensor, ...]:
    """Three tiles of a padded image, as kornia's CLAHE has them, and windows whose size or step is half the image's."""
    size = (x.shape[1] + 2) // 3
    tiles = torch.nn.functional.pad(x, (0, 0, 0, size * 3 - x.shape[1])).unfold(1, size, size)
    return tiles, x.unfold(1, x.shape[1] // 2, 1), x.unfold(-1, 2, x.shape[1] // 2)


@op(
    "Tensor.unfold",
    name="windows-by-sizes",
    why="Eq(((h + 2)//3), 3): unfold takes whole numbers alone, a window or a step that is a size is the example's",
    reason="shape|input size not accessible",
    link="https://github.com/kornia/kornia/blob/main/kornia/enhance/equalization.py",
    tries=lambda b, h: torch.randn(b, h, 5),
    sizes=((2, 8), (3, 7), (1, 4), (1, 13)),
    case=_tiled,
    unchanged=lambda x: x.unfold(1, 2, 1),
)
def windows_by_sizes(original: Callable[..., Tensor], self: Tensor, dimension: int, size: Any, step: Any) -> Tensor:
    """The windows gathered by their places."""
    return unfold(self, dimension, size, step) if symbolic(size) or symbolic(step) else NotImplemented


def _on_diagonals(x: Tensor) -> tuple[Tensor, ...]:
    x = x.clone()
    x.diagonal(dim1=1, dim2=2).add_(x.diagonal(1, 2, 1).sum() + torch.linalg.diagonal(x, offset=-1).sum())
    return x, torch.diagonal(x > 0, 3, 1, 2), x.diagonal()


@op(
    "diagonal",
    why="expected to have an entirely functional graph, but found copy_to (dynamo), or lost (trace): a write to a view",
    reason="functional graph|relative error",
    tries=lambda b, m, n: torch.randn(b, m, n),
    case=_on_diagonals,
)
def diagonal_view(original: Callable[..., Tensor], input: Tensor, offset: int = 0, *axes: int, **named: int) -> Tensor:
    """The diagonal as a slice with a step of all elements in one row: a view, as torch's."""
    usual = (-2, -1) if function_name(original) == "linalg_diagonal" else (0, 1)
    dim1, dim2 = (*axes, *usual[len(axes) :])
    found = by_matrices.diagonal(input, offset, named.get("dim1", dim1), named.get("dim2", dim2))
    if not any(isinstance(size, torch.SymInt) for size in input.shape):
        return found
    # torch.export takes n - 2 to be 0 or more; and what is written to a copy is lost.
    shared = found._base is (input._base if input._is_view() else input)
    return found if shared and abs(offset) < 2 else NotImplemented


op(
    "pdist",
    why=missing("aten::pdist", "aten::_pdist_forward"),
    tries=matrices,
    case=lambda x: (torch.pdist(x[0]), torch.nn.functional.pdist(x[0], 1)),
    beside=("cdist", "masked-select"),
    to=by_matrices.pdist,
)
