"""TwinsSVT of vit-pytorch, made of einops patterns: images [B, 3, H, W] to 10 classes."""

import torch
from vit_pytorch.twins_svt import TwinsSVT


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    later = {"emb_dim": 32, "patch_size": 2, "local_patch_size": 2, "global_k": 2, "depth": 1}
    first = later | {"emb_dim": 16, "local_patch_size": 4, "global_k": 4}
    stages = {f"s{at}_{name}": value for at in (1, 2, 3, 4) for name, value in (first if at == 1 else later).items()}
    return TwinsSVT(num_classes=10, **stages).eval()
