"""The exporter is given another example: of a batch of one, and where an `if` on a size went one way only."""

import pytest
import torch
from einops import rearrange
from torch import Tensor, nn

import onnxpatch

pytestmark = pytest.mark.exports


class Films(nn.Module):
    """Frames of all films side by side, and films again, weighted by their texts."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, frames, channels = x.shape
        flat = torch.tanh(x.reshape(batch * frames, channels))
        return flat.view(batch, frames, channels).cumsum(1) * mask.sum(1)[:, None, None]


def test_a_batch_of_one_is_traced_at_another_size(tmp_path):
    model = Films().eval()
    report = onnxpatch.export(
        model, (torch.randn(1, 4, 3), torch.ones(1, 5)), tmp_path / "m.onnx",
        dynamic_shapes=({0: "batch", 1: "frames"}, {0: "batch", 1: "words"}), exporter="dynamo", attempts="asked",
    )  # fmt: skip
    assert report.ok
    assert report.checks[0].kind == "example"
    assert len({check.sizes.get("batch", 1) for check in report.checks}) > 1


def test_a_model_for_one_alone_keeps_its_example(tmp_path):
    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            assert x.shape[0] == 1
            return x * 2

    report = onnxpatch.export(
        One().eval(), (torch.randn(1, 3),), tmp_path / "m.onnx", dynamic_shapes=({1: "n"},), attempts="asked"
    )
    assert report.ok


def test_a_size_that_is_one_inside_the_model_is_traced_at_another(tmp_path):
    class Patches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            patches = rearrange(x, "b (h p) (w q) -> b h w p q", p=2, q=2)
            filtered = torch.fft.irfft2(torch.fft.rfft2(patches), s=(2, 2))
            return rearrange(filtered, "b h w p q -> b (h p) (w q)")

    report = onnxpatch.export(
        Patches().eval(), (torch.randn(2, 2, 2),), tmp_path / "m.onnx", dynamic_shapes=({1: "h", 2: "w"},)
    )
    assert report.ok and [one.name for one in report.attempts] == ["as called", "traced at h=4, w=4"]


def test_where_a_file_is_wrong_at_other_sizes_one_of_them_is_traced(tmp_path):
    class Pairs(nn.Module):
        """Sums of pairs, as kornia's CLAHE has tiles: what is right at every length runs at odd ones alone."""

        def forward(self, x: Tensor) -> Tensor:
            if x.shape[1] % 2 == 0:
                two = x.shape[1] // (x.shape[1] // 2)
                return (x.reshape(x.shape[0], -1, two) * torch.tensor([1.0] * two)).sum(-1)
            return torch.nn.functional.pad(x, (0, x.shape[1] % 2)).reshape(x.shape[0], -1, 2).sum(-1)

    report = onnxpatch.export(
        Pairs(), (torch.randn(2, 8),), tmp_path / "m.onnx", dynamic_shapes=({1: "n"},), exporter="trace"
    )
    assert report.ok and report.attempts[-1].name == "traced at n=9"
