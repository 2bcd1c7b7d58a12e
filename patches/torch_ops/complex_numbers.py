"""Complex tensors as pairs of real ones: rotary position encodings, spectra, phases.

ONNX has a complex dtype and no operators for it. While a patched model is exported, every torch call that returns or
takes a complex tensor is computed with `Pair`s: two real tensors, the real and the imaginary part.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onnxpatch import RefusedError, op, running_model, untraced
from onnxpatch.formulas.complex_calls import complex_call, touches_complex
from onnxpatch.formulas.elementary import floats
from onnxpatch.formulas.proof_cases import numbers
from onnxpatch.formulas.symbolic import operator_of, traced_from


class _Rotary(torch.nn.Module):
    """Rotary encoding as in Llama and SAM 2, with a stored table and a computed one."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(32.0), 1.0 / 100.0 ** (torch.arange(0, 8, 2) / 8))
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles))
        self.speed = torch.nn.Parameter(torch.rand(4))

    def forward(self, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pairs = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
        stored = torch.view_as_real(pairs * self.table[: q.shape[1]][None, :, None]).flatten(3)
        phase = torch.arange(q.shape[1])[:, None] * self.speed
        made = torch.polar(torch.ones_like(phase), phase).unsqueeze(1)
        return stored.type_as(q), (pairs * made.conj() * torch.exp(1j * phase)[:, None]).abs()


@op(
    "torch.*",
    name="complex-numbers",
    why="Exporting the operator 'aten::view_as_complex' to ONNX is not supported; ComplexFloat has no ONNX form",
    reason="complex",
    link="https://github.com/facebookresearch/sam2/issues/186",
    # Any function of torch may get a complex tensor, so all of them are targets and this picks the calls.
    calls=touches_complex,
    tries=lambda b, n: torch.randn(b, n, 3, 8),
    sizes=((2, 6), (1, 11), (3, 4)),
    case=_Rotary,
)
def complex_as_pairs(original: object, *args: object, **kwargs: object) -> object:
    """Computes a torch call on complex tensors with pairs of real ones."""
    running = running_model()
    stored = [] if running is None or running.model is None else [*running.tensors.values()]
    for value in args:
        if not isinstance(value, Tensor) or not value.is_complex():
            continue
        made = operator_of(value)
        if made and not traced_from(value, stored):
            raise RefusedError(
                f"{made} has no ONNX form, since no ONNX operator computes its complex result: compute it outside"
            )
    return complex_call(original, *args, **kwargs)


@op("angle", why=untraced("aten::angle"), tries=numbers)
def angle(input: Tensor) -> Tensor:
    """0, or pi for a negative number."""
    if input.is_complex():
        return NotImplemented
    x = floats(input)
    return torch.where(torch.isnan(x), x, torch.where(x < 0, torch.full_like(x, math.pi), torch.zeros_like(x)))


op("isreal", why=untraced("aten::isreal"), tries=numbers, to=lambda x: torch.ones_like(x, dtype=torch.bool))


@op("real", why=untraced("aten::real"), tries=numbers, case=lambda x: torch.real(x))
def real(input: Tensor) -> Tensor:
    """Itself."""
    return NotImplemented if input.is_complex() else input.clone()
