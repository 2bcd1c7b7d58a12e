"""A patch of your own, in about twenty lines, for a torch function that has no ONNX form.

run: python examples/own_patch.py
"""

from __future__ import annotations

import io

import onnxruntime
import torch

import onnxpatch


class Corners(torch.nn.Module):
    """Images [B, H, W] to the smaller eigenvalue of each pixel's gradient matrix [B, H - 1, W - 1], high at corners."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        down, right = image.diff(dim=1)[:, :, :-1], image.diff(dim=2)[:, :-1]
        products = torch.stack([down * down, down * right, down * right, right * right], 1)
        matrices = torch.nn.functional.avg_pool2d(products, 5, stride=1, padding=2).movedim(1, -1).unflatten(-1, (2, 2))
        return torch.linalg.eigvalsh(matrices)[..., 0]


# ---- the patch
@onnxpatch.patch(
    "torch.linalg.eigvalsh",
    name="eigenvalues-2x2",
    why="No ONNX function found for aten._linalg_eigh",
    proof=onnxpatch.Proof(
        build=Corners,
        inputs=lambda: [(torch.rand(2, 9, 12),), (torch.rand(5, 16, 7),)],  # the second size is never traced
        fails=("dynamo", "trace"),
    ),
)
def eigvalsh(original, A: torch.Tensor, UPLO: str = "L") -> torch.Tensor:
    if A.shape[-1] != 2:
        return NotImplemented  # larger matrices have no closed form: torch's own function is called
    first, second, beside = A[..., 0, 0], A[..., 1, 1], A[..., 1, 0]
    away = torch.sqrt((first - second) ** 2 / 4 + beside**2)
    return torch.stack([(first + second) / 2 - away, (first + second) / 2 + away], -1)


# ---- using it
def model() -> torch.nn.Module:
    return Corners().eval()


def main() -> None:
    corners, image = model(), torch.rand(2, 9, 12)
    file = io.BytesIO()
    report = onnxpatch.export(
        corners, (image,), file, dynamic_shapes=({0: "B", 1: "H", 2: "W"},), input_names=["image"]
    )
    print(report)
    larger = torch.rand(7, 40, 31)
    found = onnxruntime.InferenceSession(file.getvalue()).run(None, {"image": larger.numpy()})[0]
    assert torch.allclose(torch.from_numpy(found), corners(larger), atol=1e-5)


if __name__ == "__main__":
    main()
