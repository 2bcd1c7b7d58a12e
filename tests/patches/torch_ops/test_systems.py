"""Systems of equations from factors: the forms that no proof has, since each is a loop of its own under dynamo."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import onnxpatch

pytestmark = pytest.mark.exports


class Systems(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        upper, (both, pivots) = torch.linalg.cholesky(a, upper=True), torch.linalg.lu_factor(a)
        solve, turned = torch.linalg.lu_solve, b.transpose(1, 2)
        inverses = torch.cholesky_inverse(upper, upper=True), torch.cholesky_solve(b, upper, upper=True)
        return *inverses, solve(both, pivots, b), solve(both, pivots, turned, left=False, adjoint=True)


class LeastSquares(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return torch.linalg.lstsq(a, b)[:3]


class Flow(nn.Module):
    """The determinant of a transposed matrix, and exponentials of complex numbers of fixed shape."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(3, 3))[0])

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + torch.slogdet(self.weight)[1] + torch.exp(1j * self.weight).imag


def test_weights_that_are_transposed_or_become_complex_under_dynamo() -> None:
    report = onnxpatch.export(Flow().eval(), torch.randn(2, 3, 3), exporter="dynamo", dynamic_shapes=({0: "n"},))
    assert report.ok, str(report)


def matrices(n: int) -> tuple[Tensor, Tensor]:
    a = torch.randn(2, n, n)
    return a @ a.mT + n * torch.eye(n), torch.randn(2, n, 3)


@pytest.mark.parametrize(
    ("model", "make", "dynamic", "sizes"),
    [
        (Systems(), matrices, ({1: "n", 2: "n"}, {1: "n"}), (12, 3)),
        (LeastSquares(), lambda m: (torch.randn(m, 4), torch.randn(m, 3)), ({0: "m"}, {0: "m"}), (9, 5)),
    ],
    ids=["by factors", "least squares"],
)
def test_forms_beside_those_of_the_proofs(model, make, dynamic, sizes, tmp_path) -> None:
    file = tmp_path / "m.onnx"
    others = [make(size) for size in sizes]  # eager refuses random matrices without a factor
    report = onnxpatch.export(model.eval(), make(6), file, exporter="trace", dynamic_shapes=dynamic, data=others)
    assert report.ok, str(report)
    run = onnxpatch.Session(file)
    for args in others:
        torch.testing.assert_close(tuple(run(*args)), tuple(model(*args)), rtol=1e-3, atol=1e-4)
