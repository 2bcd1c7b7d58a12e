"""einops functions called in a forward: through both exporters at other sizes, dynamic lengths, refusals."""

from __future__ import annotations

import re

import einops
import pytest
import torch
from einops import rearrange, reduce, repeat

import onnxpatch
from tests import exporting

pytestmark = pytest.mark.exports

IMAGES = ((2, 3, 8, 12), (3, 3, 16, 4), (1, 3, 4, 20))
AXES = {0: "batch", 2: "height", 3: "width"}


class Calls(torch.nn.Module):
    """One einops call; `lengths` maps axes to numbers, or to functions of the input."""

    def __init__(self, function, pattern, *more, **lengths) -> None:
        super().__init__()
        self.function, self.pattern, self.more, self.lengths = function, pattern, more, lengths

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = {axis: length(x) if callable(length) else length for axis, length in self.lengths.items()}
        return getattr(einops, self.function)(x, self.pattern, *self.more, **lengths)


CALLS = [
    Calls("rearrange", "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
    Calls("rearrange", "b c (h p) w -> b h (p w) c", h=lambda x: x.shape[2] // 2),
    Calls("rearrange", "b c (h p) (w q) -> (p q b) c h w", h=lambda x: x.shape[2] // 4, w=lambda x: x.shape[3] // 2),
    Calls("rearrange", "b c ... -> (b ...) 1 c"),
    Calls("reduce", "b c (h 2) (w 2) -> b (h w) c", "mean"),
    Calls("reduce", "b c (2 h) w -> h b", "prod"),
    Calls("reduce", "b c h w -> b c 1 1", torch.amax),
    Calls("repeat", "b c h w -> b c (h 2) (w 2)"),
    Calls("repeat", "b c h w -> (n b) c h w", n=lambda x: x.shape[3] // 2),
    Calls("repeat", "b c h w -> b n c (h r) (2 w)", n=lambda x: x.shape[2], r=3),
    Calls("repeat", "b c h w -> b (k c) h 3 w", k=2),
]


def names(call: object) -> str:
    return f"{call.function} {call.pattern}" if isinstance(call, Calls) else str(call)


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
@pytest.mark.parametrize("model", CALLS, ids=names)
def test_calls(model, exporter):
    xs = [torch.rand(size) + 0.5 for size in IMAGES]
    wanted = [model(x) for x in xs]
    with onnxpatch.patched(model, exporter=exporter):
        for x, want in zip(xs, wanted, strict=True):
            assert torch.equal(model(x), want)
        file = exporting.export(model, (xs[0],), exporter, (AXES,))
    for x, want in zip(xs, wanted, strict=True):
        assert exporting.wrong(exporting.run(file, (x,)), want, 1e-5) is None, tuple(x.shape)


class Named(torch.nn.Module):
    """Functions imported by name, lists, lambdas, a class token for as many rows as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.token = torch.nn.Parameter(torch.randn(1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (rearrange(part, "b n (h d) -> b h n d", h=2) for part in x.chunk(3, dim=-1))
        mixed = rearrange(torch.softmax(q @ k.transpose(-1, -2), -1) @ v, "b h n d -> b n (h d)")
        rows = repeat(self.token, "1 d -> b 1 d", b=x.shape[0])
        both = rearrange([mixed, reduce([mixed, mixed * 2], "k b n d -> b n d", "max")], "k b n d -> b (k n) d")
        return torch.cat([rows, both], dim=1)


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_functions_imported_by_name(exporter):
    model = Named().eval()
    xs = [torch.randn(size) for size in ((2, 5, 24), (3, 9, 24), (1, 2, 24))]
    wanted = [model(x).detach() for x in xs]
    with onnxpatch.patched(model, exporter=exporter) as active:
        file = exporting.export(model, (xs[0],), exporter, ({0: "batch", 1: "tokens"},))
    assert active.scope.hits["einops-rearrange-function"] >= 5
    assert rearrange is einops.rearrange
    for x, want in zip(xs, wanted, strict=True):
        assert exporting.wrong(exporting.run(file, (x,)), want, 1e-5) is None, tuple(x.shape)


class Refused(torch.nn.Module):
    def __init__(self, pattern: str, **lengths: int) -> None:
        super().__init__()
        self.pattern, self.lengths = pattern, lengths

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rearrange(x, self.pattern, **self.lengths)


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
@pytest.mark.parametrize(
    ("pattern", "lengths", "said"),
    [
        ("b c (h p) -> b h (p c)", {"p": 4}, "can't divide axis of length 10 in chunks of 4"),
        ("b c (h p) -> b h (p c)", {"h": 3, "p": 4}, "10 != 12"),
        ("b c -> c b", {}, "expected 2 dims. Received 3-dim tensor"),
        ("b c h -> c b", {}, "Identifiers only on one side"),
        ("b c (h p -> b h", {"p": 2}, "[Ii]mbalanced|not balanced"),
    ],
)
def test_refusals_are_in_einops_words_with_the_module_path(pattern, lengths, said, exporter):
    model = torch.nn.Sequential(torch.nn.ReLU(), Refused(pattern, **lengths))
    x = torch.randn(2, 3, 10)
    with onnxpatch.patched(model), pytest.raises(Exception) as caught:
        exporting.export(model, (x,), exporter)
    told = f"{caught.value} {caught.value.__cause__}"
    assert "module '1' (Refused)" in told
    assert re.search(said, told), told


class Everything(torch.nn.Module):
    """Every operation that takes the dtype, on a float input that is brought into it."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = (x * 3).to(self.dtype)
        outs = [
            rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2),
            rearrange([x, x], "k b c h w -> b (k c) h w"),
            repeat(x, "b c h w -> b c (h 2) (w 3)"),
            repeat(x, "b c h w -> b (n c) h w", n=2),
            repeat(x, "... -> ... n", n=2),
        ]
        operations = ["max", "min"] if self.dtype != torch.complex64 else ["sum"]
        operations += ["sum", "prod"] if self.dtype not in (torch.bool, torch.complex64) else []
        operations += ["mean"] if self.dtype.is_floating_point else []
        operations += ["any", "all"] if self.dtype == torch.bool else []
        for operation in operations:
            outs += [
                reduce(x, "b c (h 2) (w 2) -> b c h w", operation),
                reduce([x, x], "k b c (p h) w -> w b h ()", operation, p=2),
            ]
        outs = [torch.view_as_real(out) if out.is_complex() else out for out in outs]
        return [out.float() if out.dtype == torch.bfloat16 else out for out in outs]


@pytest.mark.parametrize("exporter", ["trace", pytest.param("dynamo", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
    ],
    ids=str,
)  # fmt: skip
def test_every_dtype(dtype, exporter):
    model = Everything(dtype)
    xs = [torch.rand(size) + 0.2 for size in ((2, 3, 4, 6), (3, 3, 6, 2), (1, 3, 2, 4))]
    wanted = [model(x) for x in xs]
    with onnxpatch.patched(model, exporter=exporter):
        file = exporting.export(model, (xs[0],), exporter, (AXES,))
    tolerance = {torch.float16: 3e-3, torch.bfloat16: 1e-2}.get(dtype, 1e-5)  # a few units of the last place
    for x, want in zip(xs, wanted, strict=True):
        assert exporting.wrong(exporting.run(file, (x,)), want, tolerance) is None, tuple(x.shape)


class Masked(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = rearrange(x * 2, "b i j () -> b i j")
        weights.masked_fill_(weights > 0, -1.0)
        return weights.clamp_(min=-2.0)


def test_a_result_may_be_written_into():
    """torch refuses to write into a view that an autograd function made, which stands for einops under trace."""
    report = onnxpatch.export(Masked(), (torch.randn(2, 3, 4, 1),), exporter="trace", attempts="asked",
                              dynamic_shapes=({0: "b", 1: "i", 2: "j"},))  # fmt: skip
    assert report.ok


class Cut(torch.nn.Module):
    """Cut to a multiple of the blocks, which leaves nothing of a short input."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x[..., : x.shape[-2] // 4 * 4, : x.shape[-1] // 2 * 2]
        return rearrange(x, "b (h p) (w q) -> b h w (p q)", p=4, q=2), reduce(x, "b h (w q) -> b h w", "mean", q=2)


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_nothing_is_left_of_a_short_input(exporter):
    model = Cut()
    with onnxpatch.patched(model, exporter=exporter):
        file = exporting.export(model, (torch.randn(2, 8, 6),), exporter, ({0: "batch", 1: "height", 2: "width"},))
    for size in ((2, 8, 6), (1, 3, 1), (3, 4, 1), (2, 2, 7), (1, 13, 5)):
        x = torch.randn(size)
        assert exporting.wrong(exporting.run(file, (x,)), list(model(x)), 1e-5) is None, size


class Regions(torch.nn.Module):
    """A slice whose length cannot be computed at the least sizes: they divide by zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = x.shape[1] // 4
        return rearrange(x[:, : x.shape[1] // columns * 2], "b (k c) -> b k c", c=2)


def test_sizes_that_divide_by_zero_at_the_least_ones():
    model = Regions()
    with onnxpatch.patched(model, exporter="trace"):
        file = exporting.export(model, (torch.randn(2, 9),), "trace", ({0: "batch", 1: "length"},))
    for size in ((2, 9), (1, 4), (3, 18)):
        x = torch.randn(size)
        assert exporting.wrong(exporting.run(file, (x,)), [model(x)], 1e-5) is None, size
