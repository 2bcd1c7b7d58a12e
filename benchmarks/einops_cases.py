"""What the einops tables measure: rearrangements for the node table, one layer or call each for the latency table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

IMAGE = (2, 3, 8, 12)
BATCH = {0: "b"}
BATCH_SIZE = {0: "b", 2: "h", 3: "w"}
TOKENS = {0: "b", 1: "n"}


@dataclass(frozen=True)
class Pattern:
    """A rearrangement, an input's shape, its dynamic dimensions and the lengths that the pattern needs."""

    pattern: str
    shape: tuple[int, ...]
    dynamic: dict[int, str]
    lengths: dict[str, int] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32


_EMBED = "b c (h p) (w q) -> b (h w) d"
_PATCH = "b c (h p) (w q) -> b (h w) (p q c)"
_SPLIT = "b (h p) -> h b p"
_FOUR = {"p": 4, "q": 4}

PATTERNS = [
    Pattern(_PATCH, IMAGE, BATCH_SIZE, _FOUR),
    Pattern(_PATCH, IMAGE, BATCH, _FOUR),
    Pattern("b c (h p) (w q) -> b h w (p q c)", IMAGE, BATCH_SIZE, _FOUR),
    Pattern("b c (h p) (w q) -> (b h w) c p q", IMAGE, BATCH_SIZE, _FOUR),
    Pattern(_PATCH, IMAGE, BATCH, {"h": 2, "w": 3}),
    Pattern("b c h w -> b h w c", IMAGE, BATCH_SIZE),
    Pattern("a b c d -> d c b a", (2, 3, 4, 5), {0: "a", 1: "b", 2: "c", 3: "d"}),
    Pattern("b c h w -> b c h w", IMAGE, BATCH_SIZE),
    Pattern("b c h w -> b c (h w)", IMAGE, BATCH_SIZE),
    Pattern("b c h w -> b (h w) c", IMAGE, BATCH_SIZE),
    Pattern("b c h w -> b (c h w)", IMAGE, BATCH_SIZE),
    Pattern("b ... -> b (...)", IMAGE, BATCH_SIZE),
    Pattern("... d -> d ...", IMAGE, BATCH_SIZE),
    Pattern("b ... c -> b c ...", (2, 4, 5, 6), {0: "b", 1: "x", 2: "y"}),
    Pattern("b c ... -> b (... c)", IMAGE, BATCH_SIZE),
    Pattern("b t c h w -> (b t) c h w", (2, 3, 4, 5, 6), {0: "b", 1: "t", 3: "h", 4: "w"}),
    Pattern("(b t) c -> b t c", (6, 4), {0: "n"}, {"t": 3}),
    Pattern("(b t) c -> b t c", (6, 4), {0: "n"}, {"b": 2}),
    Pattern("b n (h d) -> b h n d", (2, 5, 32), TOKENS, {"h": 4}),
    Pattern("b n (h d) -> b h n d", (2, 5, 32), {0: "b", 1: "n", 2: "d"}, {"h": 4}),
    Pattern("b h n d -> b n (h d)", (2, 4, 5, 8), {0: "b", 2: "n"}),
    Pattern("b n (k h d) -> k b h n d", (2, 5, 96), TOKENS, {"k": 3, "h": 4}),
    Pattern("b (c r s) h w -> b c (h r) (w s)", (2, 12, 3, 4), BATCH_SIZE, {"r": 2, "s": 2}),
    Pattern("b c (h r) (w s) -> b (c r s) h w", IMAGE, BATCH_SIZE, {"r": 2, "s": 2}),
    Pattern("b d (x p) (y q) -> b x y p q d", IMAGE, BATCH_SIZE, _FOUR),
    Pattern("b (x p) (y q) d -> (b x y) (p q) d", (2, 8, 12, 5), {0: "b", 1: "h", 2: "w"}, _FOUR),
    Pattern("b x y p q d -> b d (x p) (y q)", (2, 2, 3, 4, 4, 5), {0: "b", 1: "x", 2: "y"}),
    Pattern("b d (p x) (q y) -> b x y p q d", IMAGE, BATCH_SIZE, _FOUR),
    Pattern("b n -> b 1 1 n", (2, 5), TOKENS),
    Pattern("b 1 n -> b n", (2, 1, 5), {0: "b", 2: "n"}),
    Pattern("b () n -> b n ()", (2, 1, 5), {0: "b", 2: "n"}),
    Pattern("... 1 -> ...", (2, 5, 1), TOKENS),
    Pattern(
        "b c (f t) (h p) (w q) -> b f (h w) (p q t c)",
        (2, 3, 4, 8, 8),
        {0: "b", 2: "f", 3: "h", 4: "w"},
        {"t": 2, **_FOUR},
    ),
    Pattern("b c (n p) -> b n (p c)", (2, 3, 12), {0: "b", 2: "n"}, {"p": 4}),
    Pattern("b n (d r) -> b n d r", (2, 5, 8), TOKENS, {"r": 2}),
    Pattern("... (d r) -> ... d r", (2, 5, 8), TOKENS, {"r": 2}),
    Pattern("b (c d) (e f) -> (b d) (c f) e", (2, 6, 8), BATCH, {"c": 2, "f": 4}),
    Pattern(_SPLIT, (2, 6), TOKENS, {"p": 2}, torch.int64),
    Pattern(_SPLIT, (2, 6), TOKENS, {"p": 2}, torch.int32),
    Pattern(_SPLIT, (2, 6), TOKENS, {"p": 2}, torch.bool),
    Pattern(_PATCH, IMAGE, BATCH_SIZE, _FOUR, torch.float16),
    Pattern(_PATCH, IMAGE, BATCH_SIZE, _FOUR, torch.float64),
]


class Repeat(torch.nn.Module):
    """einops.repeat as a model."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        import einops  # noqa: F401  # loaded before the model is patched

        self.pattern = pattern

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from einops import repeat

        return repeat(x, self.pattern)


@dataclass(frozen=True)
class Timed:
    """A model, a small and a large input's shape, and its dynamic dimensions. limit: the ratio it has to stay under."""

    name: str
    build: Callable[[], torch.nn.Module]
    small: tuple[int, ...]
    large: tuple[int, ...]
    dynamic: dict[int, str]
    limit: float | None = None


def _rearrange(pattern: str, **lengths: int) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        from einops.layers.torch import Rearrange

        return Rearrange(pattern, **lengths)

    return build


def _reduce(reduction: str) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        from einops.layers.torch import Reduce

        return Reduce("b c (h p) (w q) -> b c h w", reduction, p=2, q=2)

    return build


def _mix(pattern: str, weight: str, **lengths: int) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        from einops.layers.torch import EinMix

        torch.manual_seed(0)
        return EinMix(pattern, weight_shape=weight, bias_shape="d", **lengths)

    return build


_SMALL, _LARGE = (2, 3, 64, 64), (8, 3, 224, 224)
_CHANNELS_LAST = {0: "b", 1: "h", 2: "w"}

TIMED = [
    Timed("patch embedding, p = 4", _rearrange(_PATCH, **_FOUR), _SMALL, _LARGE, BATCH_SIZE, 0.45),
    Timed("patch embedding, p = 16", _rearrange(_PATCH, p=16, q=16), _SMALL, _LARGE, BATCH_SIZE, 0.45),
    Timed(
        "repeat 2x", lambda: Repeat("b c h w -> b c (h 2) (w 2)"), (2, 16, 32, 32), (4, 64, 56, 56), BATCH_SIZE, 0.15
    ),
    *(
        Timed(f"{reduction} over 2x2", _reduce(reduction), (2, 16, 32, 32), (4, 64, 56, 56), BATCH_SIZE, 0.45)
        for reduction in ("max", "min", "mean", "sum")
    ),
    Timed("split heads", _rearrange("b n (h d) -> b h n d", h=8), (1, 50, 256), (8, 197, 768), TOKENS, 1.0),
    Timed("merge heads", _rearrange("b h n d -> b n (h d)"), (1, 8, 50, 32), (8, 12, 197, 64), {0: "b", 2: "n"}, 1.0),
    Timed(
        "window partition",
        _rearrange("b (x p) (y q) d -> (b x y) (p q) d", p=7, q=7),
        (1, 28, 28, 32),
        (4, 56, 56, 96),
        _CHANNELS_LAST,
        1.0,
    ),
    Timed(
        "window merge",
        _rearrange("b x y p q d -> b (x p) (y q) d"),
        (1, 4, 4, 7, 7, 32),
        (4, 8, 8, 7, 7, 96),
        {0: "b", 1: "x", 2: "y"},
        1.0,
    ),
    Timed(
        "pixel shuffle",
        _rearrange("b (c r s) h w -> b c (h r) (w s)", r=2, s=2),
        (1, 64, 16, 16),
        (4, 256, 56, 56),
        BATCH_SIZE,
    ),
    *(
        Timed(f"EinMix, p = {p}{note}", _mix(_EMBED, "c p q d", c=3, p=p, q=p, d=d), _SMALL, _LARGE, axes, 1.02)
        for p, d in ((4, 96), (16, 192))
        for note, axes in (("", BATCH_SIZE), (", static image", BATCH))
    ),
    Timed(
        "EinMix, pixels",
        _mix("b c h w -> b d h w", "c d", c=64, d=128),
        (2, 64, 8, 8),
        (4, 64, 56, 56),
        BATCH_SIZE,
        1.02,
    ),
    Timed(
        "EinMix, tokens",
        _mix("b n c -> b d c", "n d", n=196, d=384),
        (1, 196, 64),
        (8, 196, 512),
        {0: "b", 2: "c"},
        1.02,
    ),
    Timed(
        "EinMix, heads",
        _mix("b n (h c) -> b n (h d)", "h c d", h=8, c=32, d=32),
        (1, 50, 256),
        (8, 197, 256),
        TOKENS,
        1.02,
    ),
]
