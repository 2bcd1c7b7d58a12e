"""Depth-Anything-V2 of transformers: images [B, 3, H, W], at any multiple of 14 pixels, to depth [B, H, W]."""

import torch
import transformers


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    backbone = transformers.Dinov2Config(
        hidden_size=48, num_hidden_layers=4, num_attention_heads=3, image_size=518, patch_size=14,
        out_indices=[1, 2, 3, 4], reshape_hidden_states=False, apply_layernorm=True,
    )  # fmt: skip
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone, reassemble_hidden_size=48, neck_hidden_sizes=[12, 24, 48, 48], fusion_hidden_size=16
    )
    depth = transformers.DepthAnythingForDepthEstimation(config).eval()
    torch.nn.init.normal_(depth.backbone.embeddings.position_embeddings)  # as a trained table: not near zero
    torch.nn.init.ones_(depth.head.conv3.bias)  # fresh weights give a depth of zero nearly everywhere
    return depth
