"""Running products and running log-sums: across blocks, along any axis, over zeros, infinities and wide ranges."""

from __future__ import annotations

import pytest
import torch

from onnxpatch.formulas import nodes
from onnxpatch.formulas.scans import (
    _blocks,
    complex_cumprod,
    complex_recurrence,
    linear_recurrence,
    logcumsumexp,
    scanned_product,
)
from tests.formulas.forms import EXPORTERS, differences

pytestmark = pytest.mark.exports

LENGTHS = (70, 1, 128, 129, 500, 17000)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_products(exporter):
    inputs = [(1 + torch.randn(2, n) / 50,) for n in LENGTHS]
    inputs[4][0][0, 5] = 0.0
    inputs[4][0][1, :80] = 30.0  # beyond float32 after 26 of them; torch multiplies in float64, too
    inputs[4][0][1, 80:160] = 1 / 30
    form, eager = (lambda x: scanned_product(x, 1)), (lambda x: torch.cumprod(x, 1))
    assert not differences(form, eager, exporter, ({1: "n"},), inputs, 1e-5)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_products_of_integers_along_the_first_axis(exporter):
    inputs = [(torch.randint(-2, 3, (n, 3)),) for n in LENGTHS]
    form, eager = (lambda x: scanned_product(x, 0)), (lambda x: torch.cumprod(x, 0))
    assert not differences(form, eager, exporter, ({0: "n"},), inputs)


@pytest.mark.parametrize("exporter", [pytest.param("dynamo", marks=pytest.mark.slow), "trace"])
def test_log_sums(exporter):
    inputs = [(torch.randn(n, 2),) for n in LENGTHS]
    wide = 200 * torch.randn(500, 2)
    wide[0, 0], wide[300, 1] = -torch.inf, torch.inf
    inputs.append((wide,))
    form, eager = (lambda x: logcumsumexp(x, 0)), (lambda x: torch.logcumsumexp(x, 0))
    assert not differences(form, eager, exporter, ({0: "n"},), inputs, 2e-6)


def test_a_row_beyond_the_last_level_is_refused_by_the_runtime():
    form = lambda x: nodes.run(_blocks(8, 0.0, front=True, one=True), x)  # noqa: E731
    with pytest.raises(Exception, match="cannot be reshaped"):
        differences(form, lambda x: x, "trace", ({0: "n"},), [(torch.randn(7, 2),), (torch.randn(8, 2),)])


def test_nothing_and_one_number():
    for form in (scanned_product, logcumsumexp):
        assert form(torch.tensor(2.0), 0) == 2
        assert form(torch.zeros(3, 0), 1).shape == (3, 0)
    assert logcumsumexp(torch.full((3,), -torch.inf), 0).tolist() == [-torch.inf] * 3


def unrolled(factors, inputs):
    """h[t] = factors[t] * h[t - 1] + inputs[t] along the last axis."""
    state, states = torch.zeros_like(inputs[..., 0]), []
    for factor, x in zip(factors.unbind(-1), inputs.unbind(-1), strict=True):
        state = factor * state + x
        states.append(state)
    return torch.stack(states, -1)


@pytest.mark.parametrize("exporter", [pytest.param("dynamo", marks=pytest.mark.slow), "trace"])
def test_recurrences(exporter):
    inputs = [(torch.rand(2, n), torch.randn(2, n)) for n in LENGTHS[:-1]]
    form, eager = (lambda a, x: linear_recurrence(a, x, 1)[1]), unrolled
    assert not differences(form, eager, exporter, ({1: "n"},) * 2, inputs, 1e-5)


@pytest.mark.slow  # twenty seconds; test_recurrences has the same form
@pytest.mark.parametrize("exporter", [pytest.param("dynamo", marks=pytest.mark.slow), "trace"])
def test_complex_products_and_recurrences(exporter):
    inputs = [(9 * torch.randn(2, n), torch.randn(2, n)) for n in LENGTHS[:-1]]

    def form(phase, x):
        size = torch.sigmoid(x)
        turning = size * torch.cos(phase), size * torch.sin(phase)
        products = complex_cumprod(*turning, 1)
        return torch.stack([*products, *complex_recurrence(turning, (x, x / 2), 1)[2:]])

    def eager(phase, x):
        turning = torch.polar(torch.sigmoid(x), phase)
        both = torch.stack([torch.cumprod(turning, 1), unrolled(turning, torch.complex(x, x / 2))])
        return torch.view_as_real(both).permute(0, 3, 1, 2).flatten(0, 1)

    assert not differences(form, eager, exporter, ({1: "n"},) * 2, inputs, 1e-5)
