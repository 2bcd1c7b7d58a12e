"""The primitives of `benchmarks.primitives`: functions whose stand-in could cost more than they do as they grow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.primitive_inputs import (
    assigned,
    cameras,
    channels,
    complex_product,
    counted,
    eight,
    even_image,
    experts,
    folded,
    grid,
    gridded,
    heads,
    image,
    matrix,
    members,
    pairs,
    resize,
    root,
    row,
    sampled,
    scattered,
    searched,
    spectra,
    stft,
    symmetric,
    thousands,
    tokens,
    unpooled,
    warped,
    whole_numbers,
)

SIZES = (1_000, 10_000, 100_000)


@dataclasses.dataclass(frozen=True)
class Primitive:
    """inputs: arguments of n elements in and out together, or nearly. example: n of what is exported.

    patches: names of the patches that are measured by it.
    """

    name: str
    call: Callable[..., Any]
    inputs: Callable[[int], tuple[Tensor, ...]]
    dynamic: tuple[dict[int, str] | None, ...]
    example: int = 60
    patches: tuple[str, ...] = ()

    def build(self) -> nn.Module:
        return _ARITIES[len(self.dynamic)](self.call)

    def arguments(self, n: int) -> tuple[Tensor, ...]:
        """The same ones every time."""
        torch.manual_seed(0)
        return self.inputs(n)


@dataclasses.dataclass(frozen=True)
class Layer(Primitive):
    """call: makes a module, which has the patched class."""

    def build(self) -> nn.Module:
        torch.manual_seed(0)
        return self.call()


class _One(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Tensor) -> Any:
        return self.call(x)


class _Two(_One):
    def forward(self, x: Tensor, y: Tensor) -> Any:  # type: ignore[override]
        return self.call(x, y)


class _Three(_One):
    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Any:  # type: ignore[override]
        return self.call(x, y, z)


_ARITIES = {1: _One, 2: _Two, 3: _Three}


_ROW, _ROWS, _IMAGE = ({1: "n"},), ({0: "n"},), ({2: "h", 3: "w"},)
_BOTH = ({0: "n"}, {0: "m"})
_SAME = ({0: "n"}, {0: "n"})
_BINS = torch.linspace(-2, 2, 256)

CASES = [
    Primitive("searchsorted", torch.searchsorted, searched, _BOTH, patches=("searchsorted",)),
    Primitive("bucketize, 256 bins", lambda x: torch.bucketize(x, _BINS), row, _ROW, patches=("searchsorted",)),
    Primitive("isin", torch.isin, members, _BOTH, patches=("membership",)),
    Primitive("repeat_interleave by counts", lambda x, c: x.repeat_interleave(c, 0), counted, _SAME,
              patches=("repeat-by-counts",)),
    Primitive("cumprod", lambda x: torch.cumprod(1 + x / 100, 1), row, _ROW, patches=("running-products",)),
    Primitive("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), row, _ROW),
    Primitive("logcumsumexp, wide", lambda x: torch.logcumsumexp(100 * x, 1), row, _ROW),
    Primitive("median", lambda x: torch.median(x, 1).values, row, _ROW, patches=("order-statistics",)),
    Primitive("kthvalue", lambda x: torch.kthvalue(x, 5, 1).values, row, _ROW),
    Primitive("quantile", lambda x: torch.quantile(x, 0.3, 1), row, _ROW),
    Primitive("sort, stable", lambda x: torch.sort(x, dim=1, stable=True)[0], row, _ROW, patches=("stable-sort",)),
    Primitive("cdist, p = 2", torch.cdist, pairs, _BOTH, 900, patches=("cdist",)),
    Primitive("cdist, p = 1", lambda x, y: torch.cdist(x, y, 1), pairs, _BOTH, 900),
    Primitive("rfft, dynamic n", lambda x: torch.view_as_real(torch.fft.rfft(x)), row, _ROW, patches=("fft",)),
    Primitive("rfft, n = 1,000", lambda x: torch.view_as_real(torch.fft.rfft(x)), thousands, _ROWS, 2000),
    Primitive("irfft, n = 1,000", lambda x: torch.fft.irfft(torch.view_as_complex(x)), spectra, _ROWS, 2000),
    Primitive("stft, 256 points", lambda x: stft(x), row, _ROW, 400, patches=("stft",)),
    Primitive("adaptive_max_pool2d to 7", lambda x: F.adaptive_max_pool2d(x, 7), image, _IMAGE, 900,
              patches=("adaptive-max-pooling",)),
    Primitive("adaptive_avg_pool2d to 7", lambda x: F.adaptive_avg_pool2d(x, 7), image, _IMAGE, 900,
              patches=("adaptive-average-pooling",)),
    Primitive("bilinear antialiased to 64", resize(64, "bilinear", True), image, _IMAGE, 900, patches=("interpolate",)),
    Primitive("bicubic antialiased to 64", resize(64, "bicubic", True), image, _IMAGE, 900),
    Primitive("nearest to 50", resize(50, "nearest"), image, _IMAGE, 900),
    Primitive("scatter_reduce mean", lambda x, i: torch.zeros(16).scatter_reduce(0, i, x, "mean"), scattered, _SAME,
              patches=("scatter-reduce",)),
    Primitive("index_add", lambda x, i: torch.zeros(16).index_add(0, i, x), scattered, _SAME, patches=("index-add",)),
    Primitive("cumsum", lambda x: torch.cumsum(x, 1), row, _ROW, patches=("long-running-sums",)),
    Primitive("cumsum of bools", lambda x: torch.cumsum(x > 0, 1), row, _ROW, patches=("bool-reductions",)),
    Primitive("diff", lambda x: torch.diff(x, dim=1), row, _ROW, patches=("composites",)),
    Primitive("unfold 16, 4", lambda x: x.unfold(1, 16, 4), row, _ROW),
    Primitive("unfold by a 64th", lambda x: x.unfold(1, x.shape[1] // 64, x.shape[1] // 64), row, _ROW,
              patches=("windows-by-sizes",)),
    Primitive("diag_embed", lambda x: torch.diag_embed(x), root, _ROW, 900),
    Primitive("kron with 2 x 2", lambda x: torch.kron(x, torch.ones(2, 2)), matrix, _ROWS, 640,
              ("specialized-functions",)),
    Primitive("corrcoef of 8 rows", torch.corrcoef, eight, _ROW, 400, ("specialized-functions",)),
    Primitive("inverse of 3 x 3", torch.inverse, cameras, _ROWS, patches=("inverse",)),
    Primitive("affine_grid", grid, warped, (*_IMAGE, None), 900, patches=("affine-grid",)),
    Primitive("rms_norm", lambda x: F.rms_norm(x, (64,)), matrix, _ROWS, 640, patches=("rms-norm",)),
    Primitive("instance_norm", F.instance_norm, image, _IMAGE, 900, patches=("instance-norm",)),
    Primitive("cummax", lambda x: torch.cummax(x, 1).values, row, _ROW, patches=("running-extremes",)),
    Primitive("bincount", torch.bincount, whole_numbers, _ROWS, patches=("bincount",)),
    Primitive("histc, 64 bins", lambda x: torch.histc(x, 64, -3.0, 3.0), row, _ROW, patches=("histc",)),
    Primitive("masked_select", lambda x: x.masked_select(x > 0), row, _ROW, patches=("masked-select",)),
    Primitive("values under a mask", assigned, row, _ROW, patches=("masked-assignment",)),
    Primitive("lgamma", lambda x: torch.lgamma(x.abs() + 1), row, _ROW, patches=("lgamma",)),
    Primitive("gelu", F.gelu, row, _ROW, patches=("gelu",)),
    Primitive("atan2", torch.atan2, lambda n: (*row(n), *row(n)), ({1: "n"}, {1: "n"}), patches=("atan2-origin",)),
    Primitive("var", lambda x: x.var(1, keepdim=True), matrix, _ROWS, 640, ("variance",)),
    Primitive("layer_norm", lambda x: F.layer_norm(x, (64,)), matrix, _ROWS, 640, ("layer-norm",)),
    Primitive("group_norm", lambda x: F.group_norm(x, 8), channels, _IMAGE, 900, ("group-norm",)),
    Primitive("batch_norm by its batch", lambda x: F.batch_norm(x, None, None, training=True), channels, _IMAGE, 900,
              ("batch-statistics",)),
    Primitive("mean of a whole image", lambda x: F.avg_pool2d(x, x.shape[-2:]), channels, _IMAGE, 900,
              ("average-of-whole-axes",)),
    Primitive("maximum of a whole image", lambda x: F.max_pool2d(x, x.shape[-2:]), channels, _IMAGE, 900,
              ("maximum-of-whole-axes",)),
    Primitive("max_pool1d", lambda x: F.max_pool1d(x, 3, 2), row, _ROW, patches=("max-pooling-of-sequences",)),
    Primitive("max_unpool2d", unpooled, even_image, _IMAGE, 972, ("max-unpool",)),
    Primitive("fold", folded, even_image, _IMAGE, 972, ("fold-dynamic-size",)),
    Primitive("grid_sample", sampled, gridded, (*_IMAGE, {1: "h2", 2: "w2"}), 900, ("lost-places",)),
    Primitive("repeat_interleave by 3", lambda x: x.repeat_interleave(3, 1), row, _ROW,
              patches=("repeat-interleave",)),
    Primitive("as_strided", lambda x: x.as_strided((x.shape[1] - 3, 4), (1, 1)), row, _ROW, patches=("as-strided",)),
    Primitive("eye", lambda x: torch.eye(x.shape[1]) + 0 * x.sum(), root, _ROW, 900, ("eye",)),
    Primitive("linspace", lambda x: torch.linspace(0, 1, x.shape[1]) + x, row, _ROW, patches=("linspace",)),
    Primitive("product of complex numbers", complex_product, spectra, _ROWS, 2000, ("complex-numbers",)),
    Primitive("rows and a vector", lambda x: x @ x[0], matrix, _ROWS, 1920, ("products-with-vectors",)),
    Primitive("einsum of queries and keys", lambda q, k: torch.einsum("bhid,bhjd->bhij", q, k), heads,
              ({2: "n"}, {2: "m"}), 2000, ("einsum",)),
    Primitive("attention", lambda q, k: F.scaled_dot_product_attention(q, k, k), heads, ({2: "n"}, {2: "m"}), 2000,
              ("attention",)),
    Primitive("cholesky of 3 x 3", torch.linalg.cholesky, symmetric, _ROWS, patches=("cholesky",)),
    Primitive("solve_triangular of 3 x 3", lambda a: torch.linalg.solve_triangular(a.tril(), a, upper=False), cameras,
              _ROWS, patches=("solve-triangular",)),
    Primitive("qr of 3 x 3", lambda a: torch.linalg.qr(a)[1].abs(), cameras, _ROWS, patches=("qr",)),
    Primitive("eigvalsh of 3 x 3", torch.linalg.eigvalsh, symmetric, _ROWS, patches=("spectra-of-any-size",)),
    Layer("experts, 8 of 64 x 128", experts, tokens, _ROWS, 500, ("experts-by-expert",)),
]  # fmt: skip

_ONE_NODE = "writes as many nodes of the same work as eager has calls"
_EACH = "a fixed number of nodes, each of as much work as reading the operands"
_SIZES = "changes how a size is read, and no work on elements"
_ROUTE = "passes on to the function that does the work, which is measured or has a reason of its own"

_OF_EACH = [
    "sinh", "cosh", "atanh", "acosh", "erfc", "erfcx", "ndtr", "log-ndtr", "erfinv", "ndtri", "entr", "xlog1py",
    "logaddexp2", "signbit", "isposinf", "isneginf", "angle", "ldexp", "smooth-l1-loss", "huber-loss",
    "binary-cross-entropy", "hinge-embedding-loss", "margin-ranking-loss", "soft-margin-loss", "poisson-nll-loss",
    "cosine-embedding-loss", "multi-margin-loss", "triplet-margin-loss", "log1p", "expm1", "asinh", "logsigmoid",
    "bce-with-logits", "multilabel-soft-margin-loss", "cosine-similarity", "pairwise-distance", "logsumexp",
    "unravel-negative-index", "copies", "positive", "argwhere", "isreal", "dist", "real", "count-nonzero",
    "unique", "unique-consecutive", "stacks-along-an-axis", "select-scatter", "slice-scatter", "softplus", "fftshift",
    "ifftshift", "cumulative-trapezoid", "bitwise-and", "bitwise-or", "bitwise-xor", "bitwise-not",
    "average-by-divisor", "i0",
    "i1", "i0e", "i1e", "modified-bessel-i0", "modified-bessel-i1", "modified-bessel-k0", "modified-bessel-k1",
    "scaled-modified-bessel-k0", "scaled-modified-bessel-k1", "bessel-j0", "bessel-j1", "bessel-y0", "bessel-y1",
    "airy-ai", "spherical-bessel-j0", "frexp", "nextafter", "bitwise-right-shift", "quotients-cut-off", "gradient",
    "softmax-backward", "dropout-backward", "safe-softmax", "native-group-norm", "unsafe-masked-index",
    "unsafe-masked-index-put-accumulate", "chunk-cat", "sum-to-size", "diagonal-scatter", "put", "index-reduce",
    "segment-reduce", "nonzero-static", "native-batch-norm", "batch-norm-with-update", "negative-pads",
    "circular-padding", "cross-of-the-first-three", "hardshrink", "heaviside", "softshrink",
    "products-of-integers", "addmm", "linspace-of-whole-numbers", "norms-of-bfloat16", "norms-of-all-axes",
    "cross-entropy", "largest-of-bags", "part-of-the-source", "masked-put", "spread-and-mean-of-all",
    "max-pool-backward", "bools-chosen", "bytes-as-conditions", "flags-as-numbers", "shifts-by-tensors",
    "one-hot-of-all-classes", "vander", "tanhshrink", "as-strided-scatter", "dropout-of-nothing",
    "results-written-to-out", "copysign", "addcmul", "aminmax", "gaussian-nll-loss", "long-names-of-arithmetic",
]  # fmt: skip

_BY_ROWS = [
    "cholesky-systems", "lu", "systems-by-lu", "sign-of-determinant", "reflections", "norms-by-singular-values",
    "pseudoinverse", "lstsq", "inverse-powers",
]  # fmt: skip
_BY_DEGREE = [
    *(f"{kind}-polynomial-{one}" for kind in ("chebyshev", "shifted-chebyshev") for one in "tuvw"),
    "hermite-polynomial-h", "hermite-polynomial-he", "laguerre-polynomial-l", "legendre-polynomial-p",
]  # fmt: skip

# Patches of torch functions without a case, and why their work cannot grow faster than eager's.
NOT_MEASURED = {
    "average-pool-padded-by-sizes": "a Pad before the pool, and a pool of ones where the padding does not count",
    "convolution-padded-by-sizes": "a Pad before the convolution",
    "max-pool-padded-by-sizes": "a Pad before the pool",
    "mask-of-no-axes": "one axis of one element more",
    "strides-from-sizes": _SIZES,
    "spectrum-windows": "a few elementwise nodes for each position",
    "rrelu": _ONE_NODE,
    "size-as-text": _SIZES,
    "finite-whole-numbers": "zeros or ones",
    "extremes-beside-nan": "a Max or Min, and a Where beside each operand",
    "sampled-volumes": "eight Gathers for each place, as eager reads eight corners",
    "mean-of-nothing": "a sum and a division in place of a mean",
    "squeeze-of-several-axes": _ONE_NODE,
    "squeeze-of-all-axes": _ONE_NODE,
    "padding-in-branches": _SIZES,
    "ranges-of-sizes": "comparisons for each axis, and one Where of the whole tensor",
    "padding-that-is-tried": "a Gather for each axis, and one Where",
    "written-constants": _ONE_NODE,
    "bfloat16-times-integers": _ONE_NODE,
    "bools-filled": _ONE_NODE,
    "bits-in-place": _ONE_NODE,
    "diagonal": _ONE_NODE,
    "chunks-of-a-dynamic-axis": _SIZES,
    "number-of-chunks": _SIZES,
    "parts-of-a-dynamic-axis": _SIZES,
    "constant-exponentials": "computes constants once, when the model is exported",
    "einsum-of-two-dtypes": "a Cast before the einsum",
    "summed-ellipsis": "one Einsum, as eager has it",
    "order-of-products": "products of two, in the order that eager takes",
    **dict.fromkeys(["seed-in-forward", "seeded-draws"], "constants, drawn once when the model is exported"),
    "encoder-padding": _ROUTE,
    "flex-attention": "all scores, as in eager; whole models measure attention",
    "flex-attention-mask": "all places of the mask, as the scores that it is for",
    "full": _ONE_NODE,
    "idle-cast": "changes nothing that the graph computes",
    "idle-mask": "computes what is behind the test always: at most eager's work where the test is true",
    "integers-clamped-by-floats": _ONE_NODE,
    "instance-norm-of-any-channels": _ROUTE,
    "embedding-of-bounded-norm": "the norm of each row that is looked up",
    **dict.fromkeys(
        [
            "limits-of-two-kinds",
            "running-sums-of-small-numbers",
            "sum-of-flags",
            "floats-of-whole-numbers",
            "powers-of-two-dtypes",
            "stacks-of-two-dtypes",
        ],
        _ONE_NODE,
    ),
    "largest-of-all": _ONE_NODE,
    "last-slice": _SIZES,
    "multihead-attention": _ROUTE,
    "multinomial": "draws cannot be compared with eager's; with replacement it computes draws times classes numbers",
    "negative-axes": _ONE_NODE,
    "negative-indices": _ONE_NODE,
    "number-minus-integers": _ONE_NODE,
    "one-hot-of-a-size": "one comparison for each element of the result",
    "asserted-data": "changes nothing that the graph computes",
    "recurrent-layers": "one recurrent node of the runtime",
    "projected-lstm": "one recurrent node of the runtime, and one product for each direction",
    "adaptive-softmax": "log_prob, as torch writes it, and a Gather",
    "listed-lengths": "gives torch the tensor that a list was made of",
    "packed-sequences": "keeps the padded tensor and its lengths, as they are",
    "orthogonal-weights": "computes weights once, when the model is exported",
    "pad-sequence": "one Pad for each tensor of the list",
    "padded-sequences": "one slice and one mask of the padded tensor",
    "jagged-tensor": "calls each function once for each part",
    "parts-apart": "keeps the tensor whole",
    "pieces-at-once": "keeps the tensor whole",
    "captured-program": "calls the operators that the program calls, each once",
    "function-transforms": "calls the operators that ran, each once",
    "functional-call": "calls the module once",
    "cached-parametrizations": "computes a weight once for each call",
    **dict.fromkeys(["torch-cond", "torch-scan", "torch-while-loop", "torch-associative-scan"], "one If, Loop or Scan"),
    "autograd-functions": "calls the function once",
    "flatten-of-chosen-rows": _SIZES,
    "computed-windows": "the same convolution, and a Reshape of its window",
    "groups-by-size": "the multiplications of eager, of windows that are copied",
    "transposed-groups-by-size": "the multiplications of eager, of windows that are copied",
    **dict.fromkeys(["assigned-parts", "falling-ranges"], _ONE_NODE),
    **dict.fromkeys(["new-tensor-of-sizes", "arrays-of-sizes"], _SIZES),
    "places-of-int32": "a Cast of the places",
    "convolution-of-one-pixel": "a MatMul in place of a convolution of one pixel",
    "batch-norm-of-chosen-rows": "a Mul and an Add",
    "instance-norm-of-chosen-places": "means and products in place of one node, which ends the process of no places",
    "assignment-of-one-row": _ONE_NODE,
    "roll-by-sizes": "one Gather for each axis, as eager copies",
    "parts-flattened": "keeps the tensor whole",
    "parts-together": "keeps the tensor whole",
    "data-of-parameters": "writes a tensor once",
    "plain-data": "changes nothing that the graph computes",
    "repeat-by-a-size": _ONE_NODE,
    "rows-apart": "keeps the tensor whole",
    "rows-counted": _SIZES,
    "rows-together": "keeps the tensor whole",
    "single-axis": _SIZES,
    "squeeze-of-a-dynamic-axis": _ONE_NODE,
    "symbolic-split": _SIZES,
    "tensor-checks": _ONE_NODE,
    "tensor-of-sizes": _SIZES,
    "empty-reductions": _ONE_NODE,
    "float-ranges": "one number for each element of the result",
    **dict.fromkeys(["without-batch", "windows-without-batch"], "the same operator, of a batch of one"),
    **dict.fromkeys(_OF_EACH, _EACH),
    **dict.fromkeys(["ravel", "msort", "vsplit", "dsplit", "hsplit", "addmv", "addr", "addbmm", "vecdot"], _ONE_NODE),
    **dict.fromkeys(_BY_ROWS, "a loop with a round for each row, each of as much work as reading the matrix"),
    **dict.fromkeys(_BY_DEGREE, "a loop with a round for each degree, as in eager"),
    **dict.fromkeys(["digamma", "zeta", "polygamma", "mvlgamma"], "a fixed number of terms for each element"),
    **dict.fromkeys(["frequencies", "quotients-of-whole-numbers"], _EACH),
    **dict.fromkeys(["nanmedian", "nanquantile", "mode"], "one sort, as in eager, and a few passes"),
    **dict.fromkeys(
        [
            "unsafe-chunk",
            "new-empty-strided",
            "new-of-sizes",
            "number-shifted-by-tensors",
            "grid-of-one-axis",
            "fill",
            "H",
            "index-of-one-number",
        ],
        _ONE_NODE,
    ),
    **dict.fromkeys(
        [
            "grid-sampler-2d",
            "grid-sampler-3d",
            "lcm",
            "nuclear-norm",
            "hermitian-spectra",
            "bilinear-antialiased",
            "linear-cross-entropy",
            "systems-of-tensors",
        ],
        _ROUTE,
    ),
    "pdist": "a square of distances, of which eager has half",
    "distributions-not-validated": "fewer nodes: checks that are left out",
    "filled-diagonal": "a comparison of rows and columns, and a Where",
    "triu-indices": "a comparison of rows and columns, and a NonZero",
    "combinations": "a grid of all choices in any order: r! times as many as eager returns",
    "ctc-loss": "one round for each step, as in eager",
    "fractional-max-pooling": "one gather for each axis, of as many elements as the windows have",
    "gcd": "Euclid's rounds, of all elements at once",
    "histograms": "one search for each element, as in eager",
    "incomplete-gamma": "a series and a fraction of all elements, until the slowest has converged",
    "matrix-exponential": "twenty products of matrices, and as many squares as eager has",
    "multilabel-margin-loss": "one difference for each pair of classes of a row",
    "narrow-from-data": _SIZES,
}
