"""Exporting a form through an exporter and holding what onnxruntime makes of it against eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.exporting import export, nodes, run

EXPORTERS = ["dynamo", "trace"]


class One(torch.nn.Module):
    def __init__(self, form: Callable[..., Any]) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: torch.Tensor) -> Any:
        return self.form(x)


class Two(One):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.form(x, y)


def differences(
    form: Callable[..., Any],
    eager: Callable[..., Any],
    exporter: str,
    dynamic: tuple[dict[int, str] | None, ...],
    inputs: Sequence[tuple[torch.Tensor, ...]],
    tolerance: float = 0.0,
    most_nodes: int | None = None,
) -> list[str]:
    """What is not as in eager: the form is exported from the first inputs and run on all. NaN is equal to NaN."""
    model = (One if len(inputs[0]) == 1 else Two)(form).eval()
    file = export(model, inputs[0], exporter, dynamic)
    found = [] if most_nodes is None or nodes(file) <= most_nodes else [f"{nodes(file)} nodes"]
    for args in inputs:
        want = eager(*args)
        got = run(file, args)
        for mine, theirs in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            sizes = [tuple(each.shape) for each in args]
            if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
                found.append(f"{sizes}: {mine.dtype} {tuple(mine.shape)}, not {theirs.dtype} {tuple(theirs.shape)}")
            elif not torch.allclose(mine.double(), theirs.double(), rtol=tolerance, atol=tolerance, equal_nan=True):
                found.append(f"{sizes}: {(mine.double() - theirs.double()).abs().max():.2g}")
    return found
