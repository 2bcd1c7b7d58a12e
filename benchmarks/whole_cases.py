"""Whole models at real width, with two to four layers: what benchmarks/whole_models.py measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Args = tuple[Any, ...]
SEQUENCE = {0: "batch", 1: "length"}
IMAGE = {0: "batch", 2: "height", 3: "width"}


@dataclass(frozen=True)
class Whole:
    """build: the model. make: arguments at a size. example: the size that is exported; sizes: those that are timed.

    needs: the distributions that it comes from. image_size: that its position table becomes a constant for.
    """

    build: Callable[[], nn.Module]
    make: Callable[[int], Args]
    example: int
    sizes: Sequence[int]
    dynamic_shapes: Any
    needs: tuple[str, ...] = ()
    image_size: int | None = None


class Named(nn.Module):
    """A model of transformers, called by keyword; its first output."""

    def __init__(self, model: nn.Module, *names: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, a: Tensor, b: Tensor | None = None) -> Tensor:
        found: Tensor = self.model(**dict(zip(self.names, (a, b), strict=False)), **self.fixed)[0]
        return found


def ids(length: int) -> Tensor:
    return torch.randint(3, 1000, (1, length))


def padded(length: int) -> Args:
    """Token ids and a mask whose last eighth is padding."""
    return ids(length), (torch.arange(length) < length - length // 8).long()[None]


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return Named(BertModel(BertConfig(num_hidden_layers=2, vocab_size=1000)), "input_ids", "attention_mask")


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaModel

    return LlamaModel(
        LlamaConfig(
            hidden_size=1024, num_hidden_layers=2, num_attention_heads=16, num_key_value_heads=4,
            intermediate_size=2816, vocab_size=1000,
        )
    )  # fmt: skip


class Decode(nn.Module):
    """One token, with the keys and values of those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = _llama()

    def forward(self, token: Tensor, past: list[tuple[Tensor, Tensor]], position: Tensor) -> Tensor:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer, (key, value) in enumerate(past):
            cache.update(key, value, layer)
        found: Tensor = self.model(input_ids=token, past_key_values=cache, position_ids=position)[0]
        return found


def past(length: int) -> Args:
    layers = [(torch.randn(1, 4, length, 64), torch.randn(1, 4, length, 64)) for _ in range(2)]
    return ids(1), layers, torch.tensor([[length]])


def simple_vit() -> nn.Module:
    from vit_pytorch import SimpleViT

    return SimpleViT(image_size=224, patch_size=16, num_classes=1000, dim=384, depth=3, heads=6, mlp_dim=1536)


def whisper() -> nn.Module:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    return Named(WhisperEncoder(WhisperConfig(encoder_layers=2, d_model=384, encoder_attention_heads=6)),
                 "input_features")  # fmt: skip


def x_transformers() -> nn.Module:
    from x_transformers import Encoder, TransformerWrapper

    return TransformerWrapper(
        num_tokens=1000, max_seq_len=1024, attn_layers=Encoder(dim=512, depth=2, heads=8, attn_dim_head=64)
    )


def conformer() -> nn.Module:
    from conformer import Conformer

    return Conformer(dim=512, depth=2, dim_head=64, heads=8, ff_mult=4, conv_expansion_factor=2, conv_kernel_size=31)


def swin() -> nn.Module:
    from transformers import SwinConfig, SwinModel

    return Named(SwinModel(SwinConfig(depths=(2, 2), num_heads=(3, 6), embed_dim=96)), "pixel_values")


class Detector(nn.Module):
    """Image features and 100 queries through torch's own encoder and decoder, as DETR has them."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 256, 32, stride=32)
        self.transformer = nn.Transformer(256, 8, 2, 2, 2048, batch_first=True)
        self.queries = nn.Parameter(torch.randn(1, 100, 256))

    def forward(self, image: Tensor) -> Tensor:
        tokens = self.patches(image).flatten(2).transpose(1, 2)
        found: Tensor = self.transformer(tokens, self.queries.expand(image.shape[0], -1, -1))
        return found


class UNet(nn.Module):
    """Three resolutions with skip connections, group norms and attention at the bottom."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.ModuleList(self._block(a, b) for a, b in zip([width, *widths], widths, strict=False))
        self.attention = nn.MultiheadAttention(4 * width, 4, batch_first=True)
        self.up = nn.ModuleList(self._block(a + b, b) for a, b in zip([4 * width, 4 * width, 2 * width], widths[::-1],
                                                                      strict=True))  # fmt: skip
        self.last = nn.Conv2d(width, 4, 3, padding=1)

    @staticmethod
    def _block(wide: int, out: int) -> nn.Module:
        return nn.Sequential(nn.GroupNorm(8, wide), nn.SiLU(), nn.Conv2d(wide, out, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        x, kept = self.first(x), []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.avg_pool2d(x, 2)
        tokens = x.flatten(2).transpose(1, 2)
        x = x + self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
        for block in self.up:
            skip = kept.pop()
            x = block(torch.cat([nn.functional.interpolate(x, size=skip.shape[2:], mode="nearest"), skip], 1))
        found: Tensor = self.last(x)
        return found


def resnet() -> nn.Module:
    from torchvision.models import resnet50

    return resnet50()


def mixer() -> nn.Module:
    import timm

    model: nn.Module = timm.create_model("mixer_s16_224")
    model.blocks = model.blocks[:4]  # type: ignore[index]
    return model


def dinov2() -> nn.Module:
    from transformers import Dinov2Config, Dinov2Model

    return Named(
        Dinov2Model(Dinov2Config(hidden_size=384, num_hidden_layers=3, num_attention_heads=6, image_size=518)),
        "pixel_values",
    )


def square(side: int) -> Args:
    return (torch.randn(1, 3, side, side),)


BATCH: Any = ({0: "batch"},)
CASES = {
    "BERT": Whole(bert, padded, 33, (128, 512), (SEQUENCE, SEQUENCE), ("transformers",)),
    "Llama": Whole(lambda: Named(_llama(), "input_ids", "attention_mask", use_cache=False),
                   lambda n: (ids(n), torch.ones(1, n, dtype=torch.long)), 33, (128, 512), (SEQUENCE, SEQUENCE),
                   ("transformers",)),
    "Llama, one token after": Whole(Decode, past, 33, (512,), ({0: "batch"}, [({2: "past"}, {2: "past"})] * 2,
                                                              {0: "batch"}), ("transformers",)),
    "SimpleViT-S 224": Whole(simple_vit, lambda n: (torch.randn(n, 3, 224, 224),), 2, (1,), BATCH, ("vit-pytorch",)),
    "Whisper encoder": Whole(whisper, lambda n: (torch.randn(n, 80, 3000),), 2, (1,), BATCH, ("transformers",)),
    "x-transformers": Whole(x_transformers, lambda n: (ids(n),), 33, (512,), (SEQUENCE,), ("x-transformers",)),
    "Conformer": Whole(conformer, lambda n: (torch.randn(1, n, 512),), 33, (512,), (SEQUENCE,), ("conformer",)),
    "Swin 224": Whole(swin, square, 224, (224,), (IMAGE,), ("transformers",)),
    "DETR-like 640": Whole(Detector, square, 320, (640,), (IMAGE,)),
    "UNet 128": Whole(UNet, lambda n: (torch.randn(1, 4, n, n),), 64, (128,), (IMAGE,)),
    "ResNet-50": Whole(resnet, lambda n: (torch.randn(n, 3, 224, 224),), 2, (1,), BATCH, ("torchvision",)),
    "Mixer-S 224": Whole(mixer, lambda n: (torch.randn(n, 3, 224, 224),), 2, (1,), BATCH, ("timm",)),
    "DINOv2-S 224": Whole(dinov2, square, 224, (224,), ({0: "batch"},), ("transformers",), image_size=224),
}  # fmt: skip
