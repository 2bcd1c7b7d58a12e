"""A vit_pytorch model with rotary positions, exported once and run at any image size.

run: python examples/vit_any_size.py

Plain torch.onnx.export refuses it, with dynamo=True as well as False: its attention is flex_attention, which has no
ONNX form. The TorchScript exporter is used here because it is the quicker one; dynamo=True gives the same.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import onnxruntime
import torch
from torch import nn

import onnxpatch

SIZES = ((2, 3, 32, 48), (1, 3, 64, 64), (3, 3, 24, 80))
DYNAMIC = ({0: "batch", 2: "height", 3: "width"},)


def build() -> nn.Module:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from benchmarks import torchvision_ops

    torchvision_ops.declare()  # vit_pytorch imports torchvision, whose wheel may not fit a CPU-only torch
    from vit_pytorch.vit_nd_rotary import ViTND

    sizes = {"input_shape": 32, "patch_size": 8, "num_classes": 10, "dim": 32, "depth": 1, "heads": 2, "mlp_dim": 64}
    return ViTND(ndim=2, dim_head=16, **sizes).eval()


def main() -> None:
    torch.manual_seed(0)
    model = build()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vit.onnx"
        # patch, export, compare with the unpatched model at sizes of the kit's choosing, restore
        example = (torch.randn(SIZES[0]),)
        report = onnxpatch.export(model, example, path, dynamo=False, dynamic_shapes=DYNAMIC, input_names=["image"])
        print(report)
        session = onnxruntime.InferenceSession(path)
    for size in SIZES:
        image = torch.randn(size)
        found = torch.from_numpy(session.run(None, {"image": image.numpy()})[0])
        with torch.no_grad():
            error = (found - model(image)).abs().max().item()
        assert error < 1e-4, error
        print(f"{size}: largest difference from PyTorch {error:.1e}")


if __name__ == "__main__":
    main()
