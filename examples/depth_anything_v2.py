"""Depth-Anything-V2, exported once, run at five image sizes: depth maps of eager and onnxruntime, and the difference.

usage: python examples/depth_anything_v2.py [--out DIR] [--exporter dynamo|trace] [--repository CHECKOUT]

The transformers model is exported in any case; with a checkout of github.com/DepthAnything/Depth-Anything-V2 on
PYTHONPATH, or named by --repository, its own code too, as it is. Weights are random: what is compared is arithmetic.
"""

from __future__ import annotations

import argparse
import importlib
import struct
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

import onnxpatch

EXAMPLE = (140, 182)
SIZES = ((140, 182), (518, 518), (224, 238), (98, 308), (280, 140))  # multiples of 14; the second is the trained size


class Depth(nn.Module):
    """The transformers model, returning its depth map alone."""

    def __init__(self) -> None:
        super().__init__()
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from benchmarks import torchvision_ops

        torchvision_ops.declare()  # transformers imports torchvision, whose wheel may not fit a CPU-only torch
        import transformers

        backbone = transformers.Dinov2Config(
            hidden_size=96,
            num_hidden_layers=4,
            num_attention_heads=3,
            image_size=518,
            patch_size=14,
            out_indices=[1, 2, 3, 4],
            reshape_hidden_states=False,
            apply_layernorm=True,
        )
        self.model = transformers.DepthAnythingForDepthEstimation(
            transformers.DepthAnythingConfig(
                backbone_config=backbone,
                reassemble_hidden_size=96,
                neck_hidden_sizes=[24, 48, 96, 96],
                fusion_hidden_size=32,
            )
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.model(pixel_values).predicted_depth


def original(repository: Path | None) -> nn.Module | None:
    """The repository's own model, or None where there is no checkout."""
    if repository is not None:
        sys.path.insert(0, str(repository))
    try:
        return importlib.import_module("depth_anything_v2.dpt").DepthAnythingV2("vits")
    except ImportError as missing:
        print(f"original repository: not run ({missing})")
        return None


def like_a_trained_one(model: nn.Module) -> nn.Module:
    """Random weights under which everything shows: position tables start out too small, and depth may be all zero."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "pos" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
        for module in model.modules():
            if isinstance(module, nn.Conv2d) and module.out_channels == 1 and module.bias is not None:
                module.bias.fill_(1.0)  # depth is cut at zero
    return model.eval()


def export(model: nn.Module, file: Path, exporter: str) -> None:
    """One file for every height and width."""
    image = torch.randn(1, 3, *EXAMPLE)
    with onnxpatch.patched(model, exporter=exporter), torch.no_grad():
        if exporter == "dynamo":
            torch.onnx.export(
                model, (image,), str(file), dynamo=True, input_names=["image"], dynamic_shapes=({2: "h", 3: "w"},)
            )
        else:
            axes = {"image": {2: "h", 3: "w"}}
            torch.onnx.export(model, (image,), str(file), dynamo=False, input_names=["image"], dynamic_axes=axes)


def compare(name: str, model: nn.Module, file: Path, folder: Path) -> float:
    """Run eager and onnxruntime at every size; write one picture each; the largest relative error."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    worst = 0.0
    for height, width in SIZES:
        image = torch.randn(1, 3, height, width, generator=torch.Generator().manual_seed(height))
        with torch.no_grad():
            eager = model(image)[0].numpy()
        if not eager.std():
            raise SystemExit(f"{name}: the depth map is the same everywhere, which shows nothing")
        depth = session.run(None, {"image": image.numpy()})[0][0]
        difference = np.abs(depth - eager)
        error = float(difference.max() / max(1e-12, np.abs(eager).max()))
        worst = max(worst, error)
        picture = np.concatenate([grey(eager), grey(depth), grey(difference, top=1e-4 * np.abs(eager).max())], axis=1)
        (folder / f"{name}_{height}x{width}.png").write_bytes(png(picture))
        print(f"  {height:4d} x {width:<4d} relative error {error:.1e}")
    return worst


def grey(values: np.ndarray, top: float | None = None) -> np.ndarray:
    """Values as 8-bit grey: from lowest to highest, or from 0 to `top`."""
    low, high = (values.min(), values.max()) if top is None else (0.0, top)
    return (255 * np.clip((values - low) / max(high - low, 1e-12), 0, 1)).astype("uint8")


def png(pixels: np.ndarray) -> bytes:
    """A grey image [height, width] as a PNG file, so that the example needs no imaging library."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder of the files and pictures; a new temporary one if left out")
    parser.add_argument("--exporter", choices=("dynamo", "trace"), default="dynamo")
    parser.add_argument("--repository", type=Path)
    given = parser.parse_args()
    out = given.out or Path(tempfile.mkdtemp(prefix="depth_maps_"))
    out.mkdir(parents=True, exist_ok=True)
    models = {"transformers": Depth(), "original": original(given.repository)}
    for name, model in models.items():
        if model is None:
            continue
        file = out / f"{name}.onnx"
        export(like_a_trained_one(model), file, given.exporter)
        print(f"{name}: exported once at {EXAMPLE[0]} x {EXAMPLE[1]}; eager | onnxruntime | difference in {out}")
        worst = compare(name, model, file, out)
        if worst > 1e-4:
            raise SystemExit(f"{name}: relative error {worst:.1e}")


if __name__ == "__main__":
    main()
