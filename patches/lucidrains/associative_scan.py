"""The associative scan of gateloop-transformer and assoc-scan: halves of halves of the example's length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas import scans
from onnxpatch.formulas.complex_pairs import Pair
from onnxpatch.formulas.symbolic import symbolic


def _gated(gates: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """A gated sum along the rows, as SimpleGateLoopLayer has it, and one whose gates turn a phase."""
    from gateloop_transformer.associative_scan import associative_scan
    from gateloop_transformer.gateloop_transformer import gate_loop_operator
    from gateloop_transformer.simplified_gate_loop import binary_operator

    products, sums = associative_scan(binary_operator, (gates.sigmoid(), x))
    turning = torch.polar(gates[..., :1].sigmoid(), gates[..., 1:2])
    return products * sums, gate_loop_operator(x, gates, x, turning.unsqueeze(-1))


@op(
    "gateloop_transformer.associative_scan.associative_scan",
    "assoc_scan.assoc_scan.associative_scan",
    why="num_elems = int(elems[0].shape[1]): the recursion over halves has the depth and lengths of the example",
    reason="complex|shape|broadcast|onnxruntime fails|specialized",
    link="https://github.com/lucidrains/gateloop-transformer",
    requires=("gateloop-transformer",),
    tries=lambda b, n: tuple(torch.randn(b, n, 3) for _ in range(2)),
    sizes=((2, 6), (3, 11), (1, 1), (2, 200)),
    case=_gated,
    beside=("complex-numbers",),
)
def associative_scan(original: Callable[..., Any], operator: Any, elems: Sequence[Any]) -> object:
    """Computes the running products of the gates and h[t] = gates[t] * h[t - 1] + inputs[t], along axis 1.

    The operators of these packages, all named binary_operator, are those of this recurrence.
    """
    # A compiled function has a `name`, and the `__name__` of its class.
    name = getattr(operator, "name", getattr(operator, "__name__", ""))
    if len(elems) != 2 or name != "binary_operator" or not symbolic(elems[0].shape[1]):
        return NotImplemented
    gates, inputs = elems
    if not any(isinstance(part, Pair) or part.is_complex() for part in elems):
        return list(scans.linear_recurrence(gates, inputs, 1))
    gates, inputs = Pair.of(gates), Pair.of(inputs)
    found = scans.complex_recurrence((gates.real, gates.imag), (inputs.real, inputs.imag), 1)
    return [Pair(*found[:2]), Pair(*found[2:])]
