"""Transforms of long axes against torch's in float64, of any length, known or only in the graph; images resized."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from onnxpatch.formulas.fourier import transform
from onnxpatch.formulas.interpolation import resized
from tests.formulas.forms import EXPORTERS, differences

pytestmark = [pytest.mark.parametrize("exporter", EXPORTERS), pytest.mark.exports]


def eager(x: torch.Tensor) -> torch.Tensor:
    """Of magnitude 1, or tolerances would mean nothing."""
    return torch.view_as_real(torch.fft.fft(x.double())).float() / x.shape[-1] ** 0.5


def test_a_length_that_only_the_graph_knows(exporter):
    inputs = [(torch.randn(2, n),) for n in (70, 1, 2, 3, 5, 128, 1000, 1009, 30011)]
    form = lambda x: torch.stack(transform(x, None, x.shape[-1]), -1) / x.shape[-1] ** 0.5  # noqa: E731
    assert not differences(form, eager, exporter, ({1: "n"},), inputs, 1e-5)


@pytest.mark.parametrize("length", [257, 1000, 1009, 16384, 131072])
def test_a_known_length(exporter, length):
    inputs = [(torch.randn(b, length),) for b in (2, 1, 3)]
    form = lambda x: torch.stack(transform(x, None, length), -1) / length**0.5  # noqa: E731
    assert not differences(form, eager, exporter, ({0: "b"},), inputs, 1e-5)


@pytest.mark.parametrize("length", [1000, 1009])
def test_complex_input(exporter, length):
    inputs = [(torch.randn(b, length), torch.randn(b, length)) for b in (2, 3)]
    form = lambda x, y: torch.stack(transform(x, y, length), -1) / length**0.5  # noqa: E731
    want = lambda x, y: torch.view_as_real(torch.fft.fft(torch.complex(x, y))) / length**0.5  # noqa: E731
    assert not differences(form, want, exporter, ({0: "b"}, {0: "b"}), inputs, 1e-5)


@pytest.mark.parametrize("wanted", ["half", "real"])
def test_less_than_all_terms_of_fewer_points(exporter, wanted):
    """The spectrum of n points of which n // 2 + 1 are given, by one product and by a chirp."""
    inputs = [(torch.randn(b, 2, n),) for b, n in ((2, 40), (1, 900), (1, 1), (3, 2), (70, 300))]

    def want(x):
        whole = torch.fft.fft(torch.complex(x[:, 0], x[:, 1])[:, : x.shape[2] // 2 + 1], x.shape[2])
        return whole.real if wanted == "real" else torch.view_as_real(whole[:, : x.shape[2] // 2 + 1])

    def form(x):
        given = x[..., : x.shape[2] // 2 + 1]
        found = transform(given[:, 0], given[:, 1], x.shape[2], wanted)
        return found[0] if wanted == "real" else torch.stack(found, -1)

    assert not differences(form, want, exporter, ({0: "b", 2: "n"},), inputs, 1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images(exporter, mode):
    inputs = [(torch.randn(2, 3, h, w),) for h, w in ((16, 20), (64, 64), (2, 5), (31, 200))]
    form = lambda x: resized(x, (x.shape[2] // 2, 20), mode)  # noqa: E731
    want = lambda x: F.interpolate(x, (x.shape[2] // 2, 20), mode=mode, antialias=True)  # noqa: E731
    assert not differences(form, want, exporter, ({0: "b", 2: "h", 3: "w"},), inputs, 1e-4)
