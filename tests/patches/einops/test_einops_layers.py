"""einops layers against einops itself: many patterns, in eager and through onnxruntime, and what is refused."""

from __future__ import annotations

import einops
import onnx
import pytest
import torch
from einops.layers.torch import EinMix, Rearrange, Reduce

import onnxpatch
from tests import exporting

pytestmark = pytest.mark.exports

IMAGES = ((2, 3, 8, 12), (3, 3, 16, 4), (1, 3, 4, 20))
DYNAMIC = ({0: "batch", 2: "height", 3: "width"},)
TOKENS = ((2, 5, 24), (3, 7, 24), (1, 2, 24))

REARRANGE = [
    ("b c (h p) (w q) -> b (h w) (p q c)", {"p": 4, "q": 4}, IMAGES, {0: "b", 2: "h", 3: "w"}),
    ("b c (p h) (q w) -> (b p q) h w c", {"p": 2, "q": 2}, IMAGES, {0: "b", 2: "h", 3: "w"}),
    ("b (g c) h w -> b (c g) h w", {"g": 3}, ((2, 6, 4, 5), (3, 6, 2, 7), (1, 6, 4, 5)), {0: "b", 2: "h", 3: "w"}),
    ("b (c r s) h w -> b c (h r) (w s)", {"r": 2, "s": 2}, ((2, 12, 3, 4), (1, 12, 5, 2)), {0: "b", 2: "h", 3: "w"}),
    ("b n (k h d) -> k (b h) n d", {"k": 3, "h": 2}, TOKENS, {0: "b", 1: "n"}),
    ("b ... -> (...) b 1", {}, IMAGES, {0: "b", 2: "h", 3: "w"}),
    ("... (h d) -> h ... d", {"h": 4}, TOKENS, {0: "b", 1: "n"}),
    ("b () n -> n b ()", {}, ((2, 1, 5), (3, 1, 7)), {0: "b", 2: "n"}),
    ("(b t) c -> t c b", {"t": 3}, ((6, 4), (3, 4), (12, 4)), {0: "n"}),
]
REDUCE = [
    ("b c (h p) (w q) -> b (h w) c", {"p": 2, "q": 2}, IMAGES, {0: "b", 2: "h", 3: "w"}),
    ("b c (p h) w -> b h (c w)", {"p": 2}, IMAGES, {0: "b", 2: "h", 3: "w"}),
    ("b ... d -> d b", {}, IMAGES, {0: "b", 2: "h", 3: "w"}),
    ("b (n 4) d -> b 1 n d", {}, ((2, 8, 3), (3, 4, 3), (1, 12, 3)), {0: "b", 1: "n"}),
    ("b c h w ->", {}, IMAGES, {0: "b", 2: "h", 3: "w"}),
]
EINMIX = [
    (
        "b c (h p) (w q) -> b (h w) d",
        "p q c d",
        "d",
        {"p": 4, "q": 4, "c": 3, "d": 5},
        (*IMAGES, (0, 3, 8, 8)),
        {0: "b", 2: "h", 3: "w"},
    ),
    ("b n (h c) -> b n (h d)", "h c d", "h d", {"h": 2, "c": 12, "d": 3}, TOKENS, {0: "b", 1: "n"}),
    ("b n c -> b m c", "n m", "m", {"n": 5, "m": 7}, ((2, 5, 8), (1, 5, 8)), {0: "b"}),
    ("... c -> ... d", "c d", None, {"c": 24, "d": 6}, TOKENS, {0: "b", 1: "n"}),
    ("b n c -> b h n d", "c h d", "h d", {"c": 24, "h": 2, "d": 3}, TOKENS, {0: "b", 1: "n"}),
    ("b n c -> b h n d", "c h d", "h", {"c": 24, "h": 2, "d": 3}, TOKENS, {0: "b", 1: "n"}),
    ("b c h w -> b d h w", "c d", "d", {"c": 3, "d": 5}, IMAGES, {0: "b", 2: "h", 3: "w"}),
    ("b c h w -> b h w d", "d c", None, {"c": 3, "d": 5}, IMAGES, {0: "b", 2: "h", 3: "w"}),
    ("b c (h p) w -> (b d) (w h)", "d p c", "d", {"c": 3, "p": 2, "d": 5}, IMAGES, {0: "b", 2: "h", 3: "w"}),
    ("b c (h p) (w q) -> b 1 (h w) (e d)", "e d q p c", "e d", {"p": 2, "q": 4, "c": 3, "d": 5, "e": 2},
     ((2, 3, 16, 16), (1, 3, 16, 16), (0, 3, 16, 16)), {0: "b"}),
    ("b c (n p) -> b d n", "p c d", "d", {"p": 2, "c": 3, "d": 4}, ((2, 3, 128), (1, 3, 128)), {0: "b"}),
    ("b c h w -> b h w", "c", None, {"c": 3}, IMAGES, {0: "b", 2: "h", 3: "w"}),
]  # fmt: skip


def check(model: torch.nn.Module, xs: list[torch.Tensor], axes: dict[int, str], exporter: str) -> None:
    """Exported inside patched(...) at the first size, right in onnxruntime at every one, and restored."""
    with torch.no_grad():
        wanted = [model(x) for x in xs]
    forward, before = type(model), dict(vars(model))
    with onnxpatch.patched(model, exporter=exporter):
        for x, want in zip(xs, wanted, strict=True):
            torch.testing.assert_close(model(x), want)
        file = exporting.export(model, (xs[0],), exporter, (axes,))
    assert type(model) is forward
    assert vars(model).keys() - {"__overloads__"} == before.keys()  # which torch.jit.script leaves on any module
    for x, want in zip(xs, wanted, strict=True):
        assert exporting.wrong(exporting.run(file, (x,)), want, 1e-5) is None, tuple(x.shape)


def inputs(sizes: tuple, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Of magnitudes near 1 (a product of hundreds must not overflow), or small whole numbers."""
    if not dtype.is_floating_point:
        return [torch.randint(0, 3, size).to(dtype) for size in sizes]
    return [(torch.randn(size).sign() * (0.5 + torch.rand(size))).to(dtype) for size in sizes]


@pytest.mark.parametrize("exporter", ["script", "trace", "dynamo"])
@pytest.mark.parametrize(("pattern", "lengths", "sizes", "axes"), REARRANGE, ids=lambda value: str(value)[:40])
def test_rearrange(pattern, lengths, sizes, axes, exporter):
    check(Rearrange(pattern, **lengths), inputs(sizes), axes, exporter)


@pytest.mark.parametrize("exporter", ["script", "trace", "dynamo"])
@pytest.mark.parametrize(("pattern", "lengths", "sizes", "axes"), REDUCE, ids=lambda value: str(value)[:40])
def test_reduce(pattern, lengths, sizes, axes, exporter):
    reductions = ("min", "max", "sum", "mean", "prod") if exporter != "dynamo" else ("max",)
    for reduction in reductions:
        check(Reduce(pattern, reduction, **lengths), inputs(sizes), axes, exporter)


@pytest.mark.parametrize("exporter", ["script", "trace", "dynamo"])
@pytest.mark.parametrize(("pattern", "weight", "bias", "lengths", "sizes", "axes"), EINMIX, ids=lambda v: str(v)[:40])
def test_einmix(pattern, weight, bias, lengths, sizes, axes, exporter):
    check(EinMix(pattern, weight_shape=weight, bias_shape=bias, **lengths).eval(), inputs(sizes), axes, exporter)


@pytest.mark.parametrize(
    ("axes", "wanted"), [({0: "b"}, {"Conv"}), ({0: "b", 2: "h", 3: "w"}, {"MatMul"})], ids=["static", "dynamic"]
)
def test_patches_are_a_conv_where_the_size_is_static_and_else_a_product_that_refuses_what_einops_refuses(axes, wanted):
    layer = EinMix("b c (h p) (w q) -> b (h w) d", "c p q d", "d", c=3, p=4, q=4, d=8).eval()
    with onnxpatch.patched(layer, exporter="dynamo"):
        file = exporting.export(layer, (torch.randn(2, 3, 32, 32),), "dynamo", (axes,))
    assert {node.op_type for node in onnx.load_from_string(file).graph.node} & {"Conv", "MatMul", "Einsum"} == wanted
    odd = torch.randn(1, 3, 32, 38)
    with pytest.raises(einops.EinopsError, match="divide"):
        layer(odd)
    with pytest.raises(Exception, match=r"Reshape|INVALID_ARGUMENT|dimension"):
        exporting.run(file, (odd,))


@pytest.mark.parametrize("exporter", ["script", "trace"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float64])
def test_dtypes(dtype, exporter):
    check(Rearrange("b c (h p) w -> h (b p) w c", p=2), inputs(IMAGES, dtype), DYNAMIC[0], exporter)
    for reduction in ("max", "min") if dtype == torch.bool else ("max", "sum"):
        check(Reduce("b c (h 2) w -> b c h", reduction), inputs(IMAGES, dtype), DYNAMIC[0], exporter)


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_an_empty_batch_is_a_batch(exporter):
    check(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
        inputs(((2, 3, 8, 12), (0, 3, 8, 12), (0, 3, 16, 4))),
        DYNAMIC[0],
        exporter,
    )


class PatchEmbedding(torch.nn.Module):
    """The model of https://github.com/arogozhnikov/einops/issues/355: patches, a class token, positions."""

    def __init__(self, channels: int = 3, patch: int = 4, width: int = 16, size: int = 16) -> None:
        super().__init__()
        self.projection = torch.nn.Sequential(
            Rearrange("b c (h s1) (w s2) -> b (h w) (s1 s2 c)", s1=patch, s2=patch),
            torch.nn.Linear(patch * patch * channels, width),
        )
        self.cls_token = torch.nn.Parameter(torch.randn(1, 1, width))
        self.positions = torch.nn.Parameter(torch.randn((size // patch) ** 2 + 1, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.projection(x)
        return torch.cat([self.cls_token.expand(x.size(0), -1, -1), x], dim=1) + self.positions


def test_the_patch_embedding_of_einops_issue_355_scripted_at_opset_20():
    model = PatchEmbedding().eval()
    first, *others = inputs(((2, 3, 16, 16), (5, 3, 16, 16), (1, 3, 16, 16)))
    wanted = [model(x).detach() for x in (first, *others)]
    with pytest.raises(Exception, match="__getitem__"):
        exporting.export(model, (first,), "script", ({0: "batch"},), opset=20)
    with onnxpatch.patched(model):
        file = exporting.export(model, (first,), "script", ({0: "batch"},), opset=20)
    for x, want in zip((first, *others), wanted, strict=True):
        assert exporting.wrong(exporting.run(file, (x,)), want, 1e-5) is None


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_a_size_that_einops_refuses_is_refused_in_its_words_with_the_module_path(exporter):
    model = torch.nn.Sequential(torch.nn.ReLU(), Rearrange("b c (h p) w -> b (h w) (p c)", p=4))
    with onnxpatch.patched(model):
        with pytest.raises(Exception) as few:
            exporting.export(model, (torch.randn(2, 3, 8),), exporter)
        with pytest.raises(Exception) as caught:
            exporting.export(model, (torch.randn(2, 3, 10, 4),), exporter)
    for error, words in ((few.value, "expected 4 dims"), (caught.value, "can't divide axis of length 10")):
        told = f"{error} {error.__cause__}"
        assert words in told and "module '1'" in told


def test_a_subclass_with_its_own_forward_and_a_symbolic_length_are_near_misses():
    class Logged(Rearrange):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) + 1

    odd = Rearrange("b (h d) -> b h d", h=torch.tensor(2))
    plan = onnxpatch.plan(torch.nn.Sequential(Logged("a b -> b a"), odd, Reduce("a b -> a", "any")))
    assert [swap.path for swap in plan.swaps] == []
    reasons = {miss.path: miss.reason for miss in plan.near_misses}
    assert "forward of its own" in reasons["0"]
    assert "not a plain number" in reasons["1"]
    assert "no reduction 'any'" in reasons["2"]


def test_custom_rearrange_needs_no_patching():
    pattern, lengths = "b c (h p) (w q) -> b (h w) (p q c)", {"p": 4, "q": 4}
    layer = onnxpatch.CustomRearrange(pattern, **lengths)
    xs = inputs(IMAGES)
    for exporter in ("script", "trace", "dynamo"):
        file = exporting.export(layer, (xs[0],), exporter, DYNAMIC)
        for x in xs:
            want = einops.rearrange(x, pattern, **lengths)
            assert torch.equal(layer(x), want)
            assert torch.equal(exporting.run(file, (x,))[0], want)


@pytest.mark.parametrize("pattern", ["a b -> a", "a a -> a", "a (b -> b a", "a b -> a b 2", "a ... -> a", "a -> a ..."])
def test_custom_rearrange_refuses_what_einops_refuses(pattern):
    with pytest.raises(einops.EinopsError) as ours:
        onnxpatch.CustomRearrange(pattern)
    with pytest.raises(einops.EinopsError) as theirs:
        Rearrange(pattern)
    assert str(ours.value) == str(theirs.value)
