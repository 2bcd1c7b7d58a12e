"""einops.pack, unpack and einsum in a forward: at sizes the trace never saw, and what einops refuses."""

from __future__ import annotations

import re

import pytest
import torch
from einops import einsum, pack, unpack

import onnxpatch
from tests import exporting

pytestmark = pytest.mark.exports


class OfOne(torch.nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> object:
        return self.function(x)


class OfTwo(OfOne):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> object:
        return self.function(x, y)


def checked(model: torch.nn.Module, inputs: list[tuple], axes: tuple, exporter: str) -> bytes:
    wanted = [model(*args) for args in inputs]
    with onnxpatch.patched(model, exporter=exporter):
        file = exporting.export(model, inputs[0], exporter, axes)
    for args, want in zip(inputs, wanted, strict=True):
        assert exporting.wrong(exporting.run(file, args), want, 1e-5) is None, [tuple(x.shape) for x in args]
    return file


BOTH = ["trace", pytest.param("dynamo", marks=pytest.mark.slow)]


def there_and_back(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    packed, shapes = pack([x, y, x[:, 0]], "b * d")
    return [torch.as_tensor(packed), *unpack(packed * 2, shapes, "b * d")]


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_packed_shapes_undo_the_packing(exporter):
    inputs = [(torch.randn(b, h, w, d), torch.randn(b, n, w, d)) for b, h, w, d, n in
              ((2, 3, 5, 4, 6), (3, 2, 7, 4, 1), (1, 1, 2, 4, 9))]  # fmt: skip
    axes = {0: "batch", 1: "rows", 2: "width"}
    checked(OfTwo(there_and_back), inputs, (axes, {**axes, 1: "more"}), exporter)


UNPACKED = [
    ([(), (2,), (2, 3)], "b * d", ((2, 9, 4), (3, 9, 5), (1, 9, 1), (0, 9, 4))),
    ([(1,), (-1,)], "b * d", ((2, 9, 4), (3, 5, 5), (1, 2, 1))),
    ([(2,), (-1, 2), ()], "b * d", ((2, 9, 4), (3, 5, 5), (1, 11, 1))),
    ([(-1,), (2,), (1, 1)], "* b d", ((9, 2, 4), (5, 3, 5), (4, 1, 1))),
    ([(-1,)], "b d *", ((2, 4, 9), (3, 5, 1))),
]


@pytest.mark.parametrize("exporter", BOTH)
@pytest.mark.parametrize(("shapes", "pattern", "sizes"), UNPACKED, ids=lambda value: str(value)[:30])
def test_unpack(shapes, pattern, sizes, exporter):
    model = OfOne(lambda x: [part * 1.5 for part in unpack(x, shapes, pattern)])
    open_axis = any(-1 in shape for shape in shapes)
    axes = {dim: f"d{dim}" for dim in range(3) if open_axis or pattern.split()[dim] != "*"}
    checked(model, [(torch.randn(size),) for size in sizes], (axes,), exporter)


@pytest.mark.parametrize("exporter", BOTH)
def test_packing_is_a_reshape_each(exporter):
    model = OfTwo(lambda x, y: pack((x, y), "b * d")[0])
    inputs = [(torch.randn(b, h, w, 4), torch.randn(b, h, 4)) for b, h, w in ((2, 3, 5), (3, 2, 7), (1, 1, 1))]
    file = checked(model, inputs, ({0: "b", 1: "h", 2: "w"}, {0: "b", 1: "h"}), exporter)
    assert exporting.nodes(file) == 2  # one of the tensors is packed as it is


PRODUCTS = [
    ("b i d, b j d -> b i j", torch.float32),
    ("... i d, ... j d -> ... i j", torch.float32),
    ("b i d, b j d -> j", torch.int64),
    ("b i d, b j d -> b i j", torch.int8),
    ("b i d, b j d -> b i j", torch.int16),
]


@pytest.mark.parametrize("exporter", BOTH)
@pytest.mark.parametrize(("pattern", "dtype"), PRODUCTS, ids=str)
def test_einsum(pattern, dtype, exporter):
    model = OfTwo(lambda x, y: einsum(x, y, pattern))
    inputs = [((torch.randn(b, i, 4) * 9).to(dtype), (torch.randn(b, j, 4) * 9).to(dtype)) for b, i, j in
              ((2, 3, 5), (3, 7, 2), (1, 2, 6))]  # fmt: skip
    checked(model, inputs, ({0: "b", 1: "i"}, {0: "b", 1: "j"}), exporter)


REFUSED = [
    (lambda x: pack([x, x[0, 0]], "b * d"), "packed tensor #1"),
    (lambda x: pack([x], "b d"), r"No \*-axis"),
    (lambda x: pack([x], "b * b"), "Duplicates"),
    (lambda x: pack([x], "_b *"), "Invalid axis name _b"),
    (lambda x: unpack(x, [(2,), (3,)], "b *"), "input of wrong dim"),
    (lambda x: unpack(x, [(-1,), (-1,)], "b * d"), "more than one -1"),
    (lambda x: unpack(x, [(2, 2), (3,)], "b * d"), "could not split axis of size 10"),
    (lambda x: unpack(x, [(20,), (3,)], "b * d"), "could not split axis of size 10"),
    (lambda x: unpack(x, [(3, -1), (3,)], "b * d"), "could not split axis of size 10"),
]
# Here the patch has nothing to do: einops says it itself.
REFUSED_BY_EINOPS = [
    (lambda x: einsum(x, "b i d"), "must contain '->'"),
    (lambda x: einsum(x, "(b i) d -> d"), "Shape rearrangement is not yet supported"),
]


@pytest.mark.parametrize("exporter", BOTH)
@pytest.mark.parametrize(("call", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_refusals_are_in_einops_words_with_the_module_path(call, said, exporter):
    model = torch.nn.Sequential(torch.nn.ReLU(), OfOne(call))
    x = torch.randn(2, 10, 3)
    with onnxpatch.patched(model), pytest.raises(Exception) as caught:
        exporting.export(model, (x,), exporter)
    told = f"{caught.value} {caught.value.__cause__}"
    assert re.search(said, told), told
    assert "module '1' (OfOne)" in told


@pytest.mark.parametrize("exporter", BOTH)
@pytest.mark.parametrize(("call", "said"), REFUSED_BY_EINOPS, ids=[said for _, said in REFUSED_BY_EINOPS])
def test_what_einops_refuses_by_itself_names_the_module_in_export(call, said, exporter):
    model = torch.nn.Sequential(torch.nn.ReLU(), OfOne(call))
    with pytest.raises((onnxpatch.ExportError, onnxpatch.InputError), match=r"(?s)" + said):
        onnxpatch.export(model.eval(), (torch.randn(2, 10, 3),), exporter=exporter)
