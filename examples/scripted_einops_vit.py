"""A vision transformer made of einops layers, scripted and exported: plain torch refuses it, the kit does not.

run: python examples/scripted_einops_vit.py
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

import onnxruntime
import torch
from einops.layers.torch import Rearrange, Reduce
from torch import Tensor, nn

import onnxpatch

SIZES = ((2, 3, 32, 32), (1, 3, 64, 40), (5, 3, 16, 24))


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.split_heads = Rearrange("b n (h d) -> b h n d", h=heads)
        self.merge_heads = Rearrange("b h n d -> b n (h d)")
        self.out = nn.Linear(dim, dim)
        self.scale = (dim // heads) ** -0.5

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        q, k, v = self.split_heads(self.to_q(x)), self.split_heads(self.to_k(x)), self.split_heads(self.to_v(x))
        weights = torch.softmax(torch.matmul(q * self.scale, k.transpose(-1, -2)), dim=-1)
        return self.out(self.merge_heads(torch.matmul(weights, v)))


class EinopsViT(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes); sizes are multiples of the patch."""

    def __init__(self, patch: int = 8, dim: int = 32, depth: int = 2, heads: int = 2, classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Sequential(
            Rearrange("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=patch, p2=patch),
            nn.Linear(patch * patch * 3, dim),
        )
        self.blocks = nn.ModuleList(Attention(dim, heads) for _ in range(depth))
        self.head = nn.Sequential(Reduce("b n d -> b d", "mean"), nn.LayerNorm(dim), nn.Linear(dim, classes))

    def forward(self, image: Tensor) -> Tensor:
        x = self.embed(image)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def export(model: nn.Module, path: Path) -> None:
    """Nothing of the kit here: this is the script that a user has."""
    sizes = {"image": {0: "batch", 2: "height", 3: "width"}}
    example = (torch.randn(SIZES[0]),)
    scripted = torch.jit.script(model)
    torch.onnx.export(
        scripted, example, path, dynamo=False, opset_version=20, dynamic_axes=sizes, input_names=["image"]
    )


def main() -> None:
    torch.manual_seed(0)
    model = EinopsViT().eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vit.onnx"
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # torch prints the whole graph
                export(model, path)
        except Exception as error:
            print("plain:    refused:", str(error).strip().splitlines()[0])
        with onnxpatch.patched(model, exporter="script"):
            export(model, path)
        session = onnxruntime.InferenceSession(path)
    for size in SIZES:
        image = torch.randn(size)
        found = torch.from_numpy(session.run(None, {"image": image.numpy()})[0])
        with torch.no_grad():
            error = (found - model(image)).abs().max().item()
        assert error < 1e-5, error
        print(f"with kit: {size}: largest difference from PyTorch {error:.1e}")


if __name__ == "__main__":
    main()
