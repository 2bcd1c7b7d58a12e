"""Fourier transforms of long axes and antialiased images: right at every size, and no matrix grows with n * n."""

from __future__ import annotations

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import onnxpatch

pytestmark = pytest.mark.exports


class Calling(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor):
        return self.function(x)


def exported(function, inputs, exporter, dynamic, folder):
    """The file's size in bytes, once it is shown to agree with eager at every input."""
    model, file = Calling(function).eval(), folder / "m.onnx"
    report = onnxpatch.export(model, inputs[0], file, exporter=exporter, dynamic_shapes=dynamic, max_probes=3)
    assert report, str(report)
    run = onnxpatch.Session(file)
    for args in inputs:
        torch.testing.assert_close(run(*args), model(*args), rtol=1e-3, atol=1e-4)
    return file.stat().st_size


def there_and_back(x):
    spectrum = torch.fft.rfft(x, norm="ortho")
    whole = torch.fft.ifft(torch.fft.fft(x, dim=1), dim=1).real
    return spectrum.abs(), torch.fft.irfft(spectrum * 2, n=x.shape[1], norm="ortho"), whole


def rows(*sizes):
    return [(torch.randn(b, n),) for b, n in sizes]


def hermitian(x):
    f = torch.fft
    half = f.ihfft(x, dim=1), f.ihfft2(x, norm="forward")
    return f.hfft(x, dim=1), f.hfft2(x), *(torch.view_as_real(one.resolve_conj()) for one in half)


def test_hermitian_forms_beside_those_of_the_proof(tmp_path):
    exported(hermitian, [(torch.randn(b, 8, n),) for b, n in ((2, 6), (1, 9))], "trace", ({0: "b", 2: "n"},), tmp_path)


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_transforms_of_known_lengths(exporter, tmp_path):
    inputs = rows((2, 1000), (3, 1000))  # an n x n matrix of cosines would take 4 MB
    assert exported(there_and_back, inputs, exporter, ({0: "b"},), tmp_path) < 400_000


def test_a_prime_length_where_no_size_changes(tmp_path):
    exported(lambda x: torch.fft.rfft(x).abs() / 30, rows((1, 1009)), "trace", None, tmp_path)


@pytest.mark.parametrize("exporter", [pytest.param("dynamo", marks=pytest.mark.slow), "trace"])
def test_transforms_of_any_length(exporter, tmp_path):
    inputs = rows((2, 400), (1, 401), (2, 2), (1, 64), (1, 3000))
    exported(there_and_back, inputs, exporter, ({0: "b", 1: "n"},), tmp_path)


@pytest.mark.parametrize("exporter", [pytest.param("dynamo", marks=pytest.mark.slow), "trace"])
def test_long_ones_from_a_short_example(exporter, tmp_path):
    """A matrix of n x n cosines would take 80 GB at the last."""
    inputs = rows((2, 12), (1, 100_003))
    exported(lambda x: torch.fft.rfft(x, norm="ortho").abs(), inputs, exporter, ({0: "b", 1: "n"},), tmp_path)


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased_images_are_one_resize(exporter, mode, tmp_path):
    def halved(x):
        return F.interpolate(x, (x.shape[2] // 2, 20), mode=mode, antialias=True)

    inputs = [(torch.randn(1, 3, h, w),) for h, w in ((32, 24), (2, 5), (31, 100))]
    exported(halved, inputs, exporter, ({2: "h", 3: "w"},), tmp_path)
    kinds = [node.op_type for node in onnx.load(str(tmp_path / "m.onnx")).graph.node]
    assert "Resize" in kinds and "MatMul" not in kinds
