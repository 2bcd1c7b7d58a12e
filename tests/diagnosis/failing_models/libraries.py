"""Models of transformers, timm and vit_pytorch, tiny and with random weights; their culprits read off their sources."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.diagnosis.failing_models.case import Ailing

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
IMAGES = {**SMALL, "intermediate_size": 64, "image_size": 32, "patch_size": 8}
DINO = {**SMALL, "mlp_ratio": 2, "image_size": 32, "patch_size": 8}
SWIN = {"image_size": 64, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
MOBILE = {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": 2,
          "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32]}  # fmt: skip
VIT = {"image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "heads": 2, "mlp_dim": 32, "dim_head": 16}
HW = ({2: "height", 3: "width"},)
BATCH = ({0: "batch"},)


class Told(nn.Module):
    """A model with fixed keyword arguments, and the one output that matters."""

    def __init__(self, model: nn.Module, name: str = "last_hidden_state", **fixed: Any) -> None:
        super().__init__()
        self.model, self._name, self._fixed = model, name, fixed

    def forward(self, x: Tensor) -> Any:
        return getattr(self.model(x, **self._fixed), self._name)


class Noisy(nn.Module):
    """A masked autoencoder whose noise is read off the image: eager must answer twice alike."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        noise = nn.functional.avg_pool2d(x[:, :1], 8).flatten(1)
        return self.model(x, noise=noise, interpolate_pos_encoding=True).last_hidden_state


class Clip(nn.Module):
    """Two frames of one image."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(torch.stack([x, -x], 1), interpolate_pos_encoding=True).last_hidden_state


def _random(model: nn.Module) -> nn.Module:
    """Position tables start at zero in many models: there no fault in them would show."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model


def _of(model: str, config: str, wrap: Callable[[nn.Module], nn.Module] = Told, **options: Any) -> Any:
    def build() -> nn.Module:
        import transformers

        made = getattr(transformers, model)(getattr(transformers, config)(**options))
        return wrap(_random(made))

    return build


def _dpt() -> nn.Module:
    import transformers

    backbone = transformers.Dinov2Config(**{**DINO, "num_hidden_layers": 4}, out_indices=[1, 2, 3, 4],
                                         reshape_hidden_states=False)  # fmt: skip
    config = transformers.DPTConfig(backbone_config=backbone, patch_size=8, reassemble_hidden_size=32,
                                    neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=16)  # fmt: skip
    return Told(_random(transformers.DPTForDepthEstimation(config)), "predicted_depth")


def _vit(module: str, cls: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(importlib.import_module(f"vit_pytorch.{module}"), cls)(**options)


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False, num_classes=5, **options)

    return build


def _image(height: int, width: int, channels: int = 3) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randn(2, channels, height, width, generator=torch.Generator().manual_seed(1)),)


def _words(length: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.arange(1, 2 * length + 1).reshape(2, length) % 19,)


def _learned(model: nn.Module) -> nn.Module:
    return Told(model, "logits", interpolate_pos_encoding=True)


GEMMA = {**SMALL, "intermediate_size": 64, "num_key_value_heads": 1, "vocab_size": 20, "lru_width": 32,
         "block_types": ["recurrent", "attention"], "attention_window_size": 16}  # fmt: skip
PERCEIVER = {"num_latents": 4, "d_latents": 32, "num_self_attends_per_block": 1, "num_self_attention_heads": 4,
             "num_cross_attention_heads": 1, "image_size": 32, "num_labels": 5}  # fmt: skip
FNET = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 20, "pad_token_id": 0}
SEQUENCE = ({0: "batch", 1: "length"},)

TRANSFORMERS = [
    Ailing("vit-mae", _of("ViTMAEModel", "ViTMAEConfig", Noisy, **IMAGES), _image(40, 56), HW, "trace",
           "model.embeddings", "silent", "int(seq_length"),
    Ailing("radio", _of("RadioModel", "RadioConfig", max_img_size=96, num_cls_tokens=2, num_registers=2,
                        **{**DINO, "mlp_ratio": 2.0}),
           _image(32, 32), HW, "trace", "model.embeddings", "silent", "input_dims[0] < pos",
           others=("input_dims[1] < pos", "pos.shape[-2:] != tuple")),
    Ailing("swin-odd", _of("SwinModel", "SwinConfig", **SWIN), _image(72, 88), HW, "trace",
           "model.embeddings.patch_embeddings", "silent", "width % self.patch_size",
           others=("height % self.patch_size",)),
    Ailing("dpt-odd", _dpt, _image(64, 96), HW, "trace", "model.neck.fusion_stage.layers.1", "silent",
           "hidden_state.shape != residual.shape"),
    Ailing("perceiver", _of("PerceiverForImageClassificationLearned", "PerceiverConfig", _learned, **PERCEIVER),
           _image(24, 40), HW, "trace", "model.perceiver.input_preprocessor", "silent", "np.prod"),
    Ailing("mobilevit-v2", _of("MobileViTV2Model", "MobileViTV2Config", image_size=64, width_multiplier=0.25,
                               base_attn_unit_dims=[32, 64, 96]),
           _image(64, 96), HW, "trace", "model.encoder.layer.2", "refused", "functional.fold", "col2im"),
    Ailing("recurrent-gemma", _of("RecurrentGemmaModel", "RecurrentGemmaConfig", **GEMMA,
                                  attn_implementation="eager"),
           _words(6), SEQUENCE, "trace", "model.layers.0.temporal_block.rg_lru", "silent",
           "for t in range(hidden_states.shape[1])"),
    Ailing("grouped-heads", _of("RecurrentGemmaModel", "RecurrentGemmaConfig", **GEMMA), _words(6), SEQUENCE,
           "trace", "model.layers.1.temporal_block", "refused", "attention_interface(", "scaled_dot_product_attention",
           others=("scaled_dot_product_attention(",)),
    Ailing("fnet", _of("FNetModel", "FNetConfig", **FNET), _words(6), BATCH, "trace",
           "model.encoder.layer.0.fourier.self", "refused", "self.fourier_transform(hidden_states)", "fft"),
    Ailing("vit-mae", _of("ViTMAEModel", "ViTMAEConfig", Noisy, **IMAGES), _image(40, 56), HW, "dynamo",
           "model.embeddings", "silent", "int(seq_length"),
    Ailing("dino-registers", _of("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", num_register_tokens=2,
                                 **DINO),
           _image(40, 56), HW, "dynamo", "model.embeddings", "silent", "torch_int(height)"),
    Ailing("vivit-native", _of("VivitModel", "VivitConfig", Clip, num_frames=2, tubelet_size=[2, 8, 8],
                               **{k: v for k, v in IMAGES.items() if k != "patch_size"}),
           _image(32, 32), HW, "dynamo", "model.embeddings", "silent", "height == width"),
    Ailing("mobilevit", _of("MobileViTModel", "MobileViTConfig", **MOBILE), _image(64, 96), HW, "dynamo",
           "model.encoder.layer.2", "silent", "int(math.ceil(", others=("new_width != orig_width",)),
]  # fmt: skip
OTHERS = [
    Ailing("timm-vit", _timm("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4,
                             dynamic_img_size=True),
           _image(40, 56), HW, "trace", "", "refused", "F.interpolate", "upsample_bicubic2d_aa", needs="timm"),
    Ailing("timm-mobilevit", _timm("mobilevit_xxs"), _image(64, 96), HW, "trace", "stages.2.1", "silent",
           "math.ceil(H", needs="timm", others=("new_h != H",)),
    Ailing("rvt", _vit("rvt", "RvT", depth=2, **VIT), _image(32, 32), HW, "trace", "transformer.pos_emb", "silent",
           "int(sqrt(x.shape[-2]))", needs="vit_pytorch"),
    Ailing("ats", _vit("ats_vit", "ViT", depth=2, max_tokens_per_depth=(8, 4), **VIT), _image(32, 32), BATCH, "trace",
           "transformer.layers.0.0.ats", "refused", "uniform_(0, 1)", "uniform", needs="vit_pytorch"),
    Ailing("vit-fft", _vit("simple_vit_with_fft", "SimpleViT", depth=1, freq_patch_size=8, **VIT), _image(32, 32),
           BATCH, "trace", "", "refused", "fft2(img)", "fft", needs="vit_pytorch"),
    Ailing("flex", _vit("vit_nd", "ViTND", ndim=2, input_shape=32, depth=1,
                        **{k: v for k, v in VIT.items() if k != "image_size"}),
           _image(32, 32), BATCH, "trace", "transformer.layers.0.0", "refused", "nd_attention(", needs="vit_pytorch"),
    Ailing("rms", _vit("attn_residual_with_dca_simple_vit", "SimpleViT", depth=1, **VIT), _image(32, 32), BATCH,
           "trace", "transformer.layers.0.attn_res.norm", "refused", "", "rms_norm", needs="vit_pytorch"),
    Ailing("eye", _vit("vit_for_small_dataset", "ViT", depth=1, **VIT), _image(32, 32), BATCH, "trace",
           "transformer.layers.0.0", "silent", "torch.eye(", "EyeLike", needs="vit_pytorch"),
    Ailing("rvt", _vit("rvt", "RvT", depth=2, **VIT), _image(32, 32), HW, "dynamo", "transformer.pos_emb", "silent",
           "int(sqrt(x.shape[-2]))", needs="vit_pytorch"),
]  # fmt: skip
CASES = [*(Ailing(**{**vars(case), "needs": "transformers"}) for case in TRANSFORMERS), *OTHERS]
