"""A patch of your own, in about twenty lines, for a torch function that has no ONNX form.

run: python examples/own_patch.py
"""

from __future__ import annotations

import io

import onnxruntime
import torch

import onnxpatch


class Window(torch.nn.Module):
    """A layer whose torch function no exporter knows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.modified_bessel_i0(x)


# ---- the patch
@onnxpatch.patch(
    "torch.special.modified_bessel_i0",
    name="bessel-i0",
    why="No ONNX function found for aten.special_modified_bessel_i0",
    proof=onnxpatch.Proof(
        build=Window,
        inputs=lambda: [(torch.rand(2, 3) * 3,), (torch.rand(5, 3) * 3,)],  # the second size is never traced
        dynamic_shapes=({0: "batch"},),
        fails=("dynamo", "trace"),
    ),
)
def modified_bessel_i0(original, x: torch.Tensor) -> torch.Tensor:
    term = total = torch.ones_like(x)
    for k in range(1, 16):  # the power series; 15 terms are exact to float32 up to 4
        term = term * (x * x / 4) / (k * k)
        total = total + term
    return total


# ---- using it
def main() -> None:
    model, x = Window().eval(), torch.rand(2, 3) * 3
    file = io.BytesIO()
    report = onnxpatch.export(model, (x,), file, dynamic_shapes=({0: "batch"},), input_names=["x"])
    print(report)
    longer = torch.rand(7, 3) * 3
    found = onnxruntime.InferenceSession(file.getvalue()).run(None, {"x": longer.numpy()})[0]
    assert torch.allclose(torch.from_numpy(found), model(longer), rtol=1e-5)


if __name__ == "__main__":
    main()
