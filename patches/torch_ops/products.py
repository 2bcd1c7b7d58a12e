"""Products of tensors: einsum, distances, products of several matrices, cross products."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import exporting, op, untraced
from onnxpatch.formulas import layer_nodes, matrices
from onnxpatch.formulas.calls import call_of, listed
from onnxpatch.formulas.symbolic import counted, example_of, function_name, known_size, symbolic
from onnxpatch.patching.proof import LOST_DIGITS, at_magnitudes, fraction_pairs, pairs


@op(
    "cdist",
    why="No ONNX function found for aten._cdist_forward; NaN for other norms than 2 from the TorchScript exporter",
    reason="_cdist_forward|non-finite",
    link="https://github.com/pytorch/pytorch/issues/135160",
    tries=lambda b, n, m: (torch.randn(b, n, 6), torch.randn(b, m, 6)),
    sizes=((2, 5, 4), (3, 9, 2), (1, 4, 7)),
    case=lambda x, y: (
        torch.cdist(x, y),
        torch.cdist(x, y, p=1),
        torch.cdist(x, x, p=float("inf")),
        torch.cdist(x, x, 0),
    ),
)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: object = None) -> Tensor:
    """Computes p = 2 by one matrix product in float64, and other norms from all differences."""
    if p == 2:
        # Of that many rows torch itself takes the product in float32 that both exporters write.
        exact = compute_mode == "donot_use_mm_for_euclid_dist"
        return euclidean(x1, x2) if exact or not (is_many(x1) or is_many(x2)) else NotImplemented
    gap = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    gap = gap.abs()
    if p == float("inf"):
        return gap.amax(-1)
    if p == 0:
        # The "norm" 0 counts what differs. Not by a comparison: a NaN would count as a number.
        return torch.ceil(gap).clamp(max=1).sum(-1)
    return gap.sum(-1) if p == 1 else gap.pow(p).sum(-1).pow(1 / p)


class _Attention(torch.nn.Module):
    """Scores and their use, as models of many authors write them, with a weight for each feature."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(32))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        k = torch.einsum("bhjd,d->bhjd", k, self.weight)
        scores = torch.einsum("b h i d, b h j d -> b h i j", q, k)
        return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), k)


@op(
    "einsum",
    "functional.einsum",
    why="Einsum takes up to three times as long as MatMul and Mul in onnxruntime, which fuses nothing with it",
    link="https://github.com/microsoft/onnxruntime/issues/5897",
    # The last one is large: times are compared at it.
    tries=lambda b, n, m: (torch.randn(b, 4, n, 32), torch.randn(b, 4, m, 32)),
    sizes=((2, 5, 7), (3, 8, 2), (4, 128, 512)),
    case=_Attention,
    slower={"dynamo": 1.2, "trace": 1.2},
)
def einsum_as_product(equation: str, *operands: object) -> Tensor:
    """Writes an einsum of two tensors, of float32 or whole numbers, as one product. Else Einsum stays."""
    tensors = listed(operands)
    if not isinstance(equation, str) or len(tensors) != 2:
        return NotImplemented
    made = layer_nodes.product_of_einsum(equation, *tensors)
    return NotImplemented if made is None else made


@op(
    "einsum",
    "functional.einsum",
    name="order-of-products",
    why="Constraints violated: opt_einsum, where it is installed, orders three or more operands by their sizes",
    reason="specialized|inferred a static shape",
    link="https://docs.pytorch.org/docs/stable/backends.html#torch-backends-opt-einsum",
    exporters=("dynamo",),
    requires=("opt_einsum",),
    case=lambda x, y: torch.einsum("...d,...nd,...n->...n", y, x, x[..., 0]),
    tries=lambda b, n: (torch.randn(b, n, 4), torch.randn(b, 4)),
    sizes=((2, 5), (3, 8), (1, 2)),
    unchanged=lambda x, y: torch.einsum("bnd,bd->bn", x, y),
)
def order_of_products(original: Callable[..., Tensor], equation: str, *operands: object) -> Tensor:
    """In the order for the example's sizes, two at a time."""
    tensors = list(listed(operands))
    shapes = [tuple(example_of(size) for size in one.shape) for one in tensors]
    if len(tensors) < 3 or not isinstance(equation, str) or not torch.backends.opt_einsum.enabled:
        return NotImplemented
    if any(None in shape for shape in shapes):
        with torch.backends.opt_einsum.flags(enabled=False):
            return original(equation, *tensors)
    planned = torch.backends.opt_einsum.get_opt_einsum().contract_path(equation, *shapes, shapes=True)[1]
    for places, _, step, *_ in planned.contraction_list:
        tensors.append(torch.einsum(step, *(tensors.pop(place) for place in places)))
    return tensors[0]


@op(
    "einsum",
    "functional.einsum",
    name="summed-ellipsis",
    why="Inputs have ellipses in them but the provided output subscript does not contain an ellipsis",
    reason="ellips",
    case=lambda x, y: (torch.einsum("...i->i", x), torch.einsum("a...,...->a", x, y), torch.einsum("...,...->", x, x)),
    tries=lambda b, n: (torch.randn(b, n, 4), torch.randn(n, 4)),
    sizes=((2, 5), (3, 8), (1, 2)),
    unchanged=lambda x, y: torch.einsum("...i->...", x),
)
def summed_ellipsis(equation: str, *operands: object) -> Tensor:
    """With letters for the axes of an ellipsis, the last ones for an operand that has fewer."""
    left, arrow, right = equation.partition("->") if isinstance(equation, str) else ("", "", "")
    tensors = listed(operands)
    if "..." not in left or not arrow or "..." in right:
        return NotImplemented
    free = [letter for letter in string.ascii_letters if letter not in equation]
    names = [
        part.replace("...", "".join(free[len(free) - x.dim() + len(part.replace("...", "")) :]))
        for part, x in zip(left.replace(" ", "").split(","), tensors, strict=True)
    ]
    return torch.einsum(f"{','.join(names)}->{right}", *tensors)


def _specialized(x: Tensor) -> tuple[Tensor, ...]:
    chosen = torch.take_along_dim(x, x.argsort(1), 1)
    return torch.kron(x, torch.ones(2, 3)), torch.linalg.multi_dot([x, x.mT, x]), chosen


@op(
    *("kron", "corrcoef", "cov", "take_along_dim", "linalg.multi_dot", "chain_matmul"),
    name="specialized-functions",
    why="tracing inferred a static shape, or aten.equal of data: torch.kron, torch.corrcoef, multi_dot, ...",
    reason="static shape",
    link="https://github.com/pytorch/pytorch/issues/126972",
    exporters=("dynamo",),
    tries=lambda rows: torch.randn(rows, 7),
    sizes=(4, 3, 6),
    case=_specialized,
    unchanged="fixed sizes",
)
def composed_by_sizes(original: Callable[..., Tensor], *args: object, **kwargs: object) -> Tensor:
    """Computes the function of tensors with dynamic sizes from other functions."""
    given = [one for group in args for one in (group if isinstance(group, list | tuple) else [group])]
    sizes = [size for one in given if isinstance(one, Tensor) for size in one.shape]
    composed = getattr(matrices, function_name(original).removeprefix("linalg_"))
    call = call_of(composed, original, args, kwargs, takes_original=False) if any(map(symbolic, sizes)) else None
    return NotImplemented if call is None else composed(*call[0], **call[1])


# Up to this many rows torch computes differences, exactly. Here too, if the numbers of rows are static.
_FEW = 25


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """torch.cdist(x, y): (..., n, d), (..., m, d) to (..., n, m).

    |x - y|^2 = x.x + y.y - 2 x.y cancels leading digits: in float64 enough are left for float32.
    """
    if _few(x.shape[-2]) and _few(y.shape[-2]):
        gap = x.unsqueeze(-2) - y.unsqueeze(-3)
        return torch.sqrt((gap * gap).sum(-1))
    # Transposed before the terms are put together: where the operand of a product in float64 is itself a transpose,
    # onnxruntime up to 1.23 makes one node of the two, for which it has no kernel.
    left, right = x.double(), y.transpose(-1, -2).double()
    # All three terms in one product: the rows are (-2 x, x.x, 1), the columns (y, 1, y.y).
    left = torch.cat((-2 * left, (left * left).sum(-1, keepdim=True), torch.ones_like(left[..., :1])), -1)
    right = torch.cat((right, torch.ones_like(right[..., :1, :]), (right * right).sum(-2, keepdim=True)), -2)
    # Rounding may leave a little below 0 for equal rows; its root would be NaN.
    return torch.sqrt(torch.relu(torch.matmul(left, right).to(x.dtype)))


def is_many(x: Tensor) -> bool:
    """Whether x has a static number of rows for which torch computes no differences."""
    count = known_size(x.shape[-2])
    return isinstance(count, int) and count > _FEW


def _few(count: object) -> bool:
    return isinstance(count, int) and count <= _FEW


op("dist", why=untraced("aten::dist"), tries=pairs, to=lambda x, y, p=2: torch.linalg.vector_norm(x - y, p))


# ------------------------------------------------------------------ sums of products
op("addmv", why=untraced("aten::addmv"), tries=lambda b, n: (torch.randn(b), torch.randn(b, n), torch.randn(n)),
   to=lambda x, a, v, *, beta=1, alpha=1: beta * x + alpha * (a @ v))  # fmt: skip


op("addr", why=untraced("aten::addr"), tries=lambda b, n: (torch.randn(b, n), torch.randn(b), torch.randn(n)),
   to=lambda x, a, v, *, beta=1, alpha=1: beta * x + alpha * (a[:, None] * v))  # fmt: skip


op("addbmm", why=untraced("aten::addbmm"),
   tries=lambda b, n: (torch.randn(n, 4), torch.randn(b, n, 3), torch.randn(b, 3, 4)),
   to=lambda x, a, b, *, beta=1, alpha=1: beta * x + alpha * (a @ b).sum(0).to(x.dtype))  # fmt: skip


op("addmm", why="Could not find an implementation for Gemm(13)", reason="Gemm|MatMul",
   tries=lambda b, n: (torch.randint(9, (b, 3)), torch.randint(-9, 9, (b, n)), torch.randint(9, (n, 3))),
   beside=("products-of-integers",),
   to=lambda x, a, b, *, beta=1, alpha=1: NotImplemented if x.is_floating_point() else beta * x + alpha * a.mm(b),
   )  # fmt: skip


op("addcmul", why="dtype float32, eager has int64", reason="dtype", exporters=("trace",),
   tries=lambda b, n: (torch.randint(-9, 9, (b, n)), torch.randint(9, (b, n)), torch.randint(9, (n,))),
   to=lambda x, a, b, *, value=1: NotImplemented if x.is_floating_point() else x + value * (a * b))  # fmt: skip


@op("matmul", "__matmul__", "Tensor.__rmatmul__", "mv", "dot", "inner", name="products-with-vectors",
    why="onnxruntime's MatMul with an operand of one axis takes up to 80 times as long as with a matrix of one column",
    tries=lambda b, n: (torch.randn(b, n, 16), torch.randn(16)), sizes=((2, 5), (3, 8), (4, 30_000)),
    case=lambda x, v: (x @ v, v @ x.transpose(1, 2), x[0].mv(v), torch.dot(v, v * 2), v.__rmatmul__(v)),
    slower={"dynamo": 1.2, "trace": 1.2})  # fmt: skip
def vector_products(original: Callable[..., Tensor], input: Tensor, other: Tensor) -> Tensor:
    """A product with a matrix of one column, or of one row; of two vectors a sum."""
    input, other = (other, input) if original.__name__ == "__rmatmul__" else (input, other)
    vectors = [x.dim() == 1 for x in (input, other)]
    if not any(vectors) or not (input.is_floating_point() and other.is_floating_point()):
        return NotImplemented
    if all(vectors):
        return (input * other).sum()
    return (input[None] @ other).squeeze(-2) if vectors[0] else (input @ other[:, None]).squeeze(-1)


_INTEGERS = (
    "Could not find an implementation for Gemm(13); Type 'tensor(uint8)' of input parameter of MatMul is invalid"
)
_NARROW = (torch.uint8, torch.int8, torch.int16)  # onnxruntime has a MatMul of the wider ones


def _integer_products(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    small, other = x.to(torch.uint8), y.to(torch.uint8)
    vectors = small.mv(other[:, 0]), torch.dot(small[0], other[:, 0]), torch.inner(small, other[:, 0])
    more = torch.einsum("bi,ij->bj", small, other), functional.bilinear(small, small, other.T.unsqueeze(-1) * small[:1])
    return torch.mm(x, y), small @ other, torch.addmm(y[0], x, y, beta=2), *vectors, *more


@op("mm", "matmul", "__matmul__", "bmm", "mv", "dot", "inner", "einsum", "functional.einsum", "nn.functional.bilinear",
    name="products-of-integers", why=_INTEGERS, reason="Gemm|MatMul|Einsum|bilinear",
    tries=lambda b, n: (torch.randint(-9, 9, (b, n)), torch.randint(9, (n, 3))), case=_integer_products,
    beside=("addmm", "composites"))  # fmt: skip
def integer_products(original: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """In int64, of which onnxruntime has a MatMul, and back: what overflows is the same."""
    name, operands = function_name(original).strip("_"), (*args, *kwargs.values())
    # einsum takes its tensors in a list, too.
    given = [x for one in operands for x in (one if isinstance(one, list | tuple) else (one,))]
    dtypes = {x.dtype for x in given if isinstance(x, Tensor)}
    wide = (torch.int32, torch.int64) if exporting() == "trace" and name in ("mm", "matmul") else ()
    if not dtypes or not dtypes.issubset(_NARROW + wide):  # none: two complex pairs
        return NotImplemented
    # By its public name, so that other patches act on it.
    longs = (x.long() if isinstance(x, Tensor) else x for x in given)
    found: Tensor = getattr(torch, "matmul" if name == "mm" else name)(*longs)
    return found.to(next(iter(dtypes)))


op("linalg.vecdot", why=untraced("aten::linalg_vecdot"), tries=pairs, to=lambda x, y, *, dim=-1: (x * y).sum(dim))


@op(
    "cosine_similarity",
    why="relative error 0.9 for rows of length 1e-5: eps bounds the product of both lengths in the graph, and each of "
    "them in eager",
    tries=fraction_pairs,
    case=at_magnitudes(lambda x, y: torch.cosine_similarity(x, y[:1], -1)),
    exporters=("trace",),
    reason=LOST_DIGITS,
)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The product of both rows, divided by the length of each, or `eps`."""
    axis = dim % (rank := max(x1.dim(), x2.dim())) - rank
    if not all(x.dim() >= -axis for x in (x1, x2)) or x1.shape[axis] != x2.shape[axis]:
        x1, x2 = x1 + torch.zeros_like(x2), x2 + torch.zeros_like(x1)  # one broadcasts along the axis
    one, two = (torch.linalg.vector_norm(x, dim=axis).clamp(min=eps) for x in (x1, x2))
    return (x1 * x2).sum(axis) / (one * two)


@op(
    "pairwise_distance",
    why="relative error 0.5 for distances of 1e-6: the graph adds eps in another place than eager",
    tries=fraction_pairs,
    case=at_magnitudes(torch.pairwise_distance),
    exporters=("trace",),
    reason=LOST_DIGITS,
)
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps."""
    return torch.linalg.vector_norm(x1 - x2 + eps, p, dim=-1, keepdim=keepdim)


@op(
    "torch.cross",
    "Tensor.cross",
    name="cross-of-the-first-three",
    why="relative error 2.1 at a size of 3: the axis of the example is taken, and eager takes the first of size 3",
    reason="relative error",
    tries=lambda n: (torch.randn(n, 3), torch.randn(n, 3)),
    sizes=(5, 3, 1),
    case=lambda x, y: torch.cross(x, y),
    unchanged=lambda x, y: torch.linalg.cross(x, y),
)
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product along the first axis of three elements, whichever that is."""
    if dim is not None or input.shape != other.shape:
        return NotImplemented
    found: Tensor | None = None
    for axis in reversed(range(input.dim())):
        length: Any = known_size(input.shape[axis])
        if isinstance(length, int):
            found = torch.linalg.cross(input, other, dim=axis) if length == 3 else found
            continue
        size = counted(length, input)
        if isinstance(length, Tensor) and found is not None:
            length = torch.where(size == 3, size, size.clamp(max=1))  # of another size the product is not taken
        ticks = torch.arange(length, device=input.device)
        one, two = (torch.remainder(ticks + by, size.clamp(min=1)) for by in (1, 2))
        product = input.index_select(axis, one) * other.index_select(axis, two)
        product = product - input.index_select(axis, two) * other.index_select(axis, one)
        found = product if found is None else torch.where(size == 3, product, found)
    return NotImplemented if found is None else found
