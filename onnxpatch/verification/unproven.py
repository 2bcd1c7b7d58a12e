"""Finds dynamic dimensions that are unproven: no probe had another size of them."""

from __future__ import annotations

from collections.abc import Sequence

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.results.report import Checked, Unproven
from onnxpatch.verification.reference import Reference


def unproven_dimensions(reference: Reference, checks: Sequence[Checked]) -> list[Unproven]:
    """The dynamic dimensions without a right comparison at another size, with what would prove each of them."""
    right = [check.sizes for check in checks if check.status == "right"]
    oracle = reference.oracle
    return [
        Unproven(dim.name, dim.size, _reason(dim, reference), _remedy(dim, reference))
        for dim in reference.dims
        if not oracle.is_moved(dim, {sizes[dim.name] for sizes in right if dim.name in sizes})
    ]


def _reason(dim: DynamicDim, reference: Reference) -> str:
    refusal = reference.oracle.refusal_of(dim.name)
    if refusal:
        return f"eager refuses the other sizes that were tried, such as {refusal}"
    if reference.budget.over() or reference.oracle.cut_short:
        return "max_seconds was reached before another size was compared"
    return "no other size was compared within max_probes and the budget"


def _remedy(dim: DynamicDim, reference: Reference) -> str:
    names = {leaf.index: leaf.name for leaf in reference.inputs.leaves}
    axes = [f"axis {axis} of {names[leaf]}" for leaf, axis, _ in dim.places]
    return (
        f"data=[args] with inputs that the model accepts at another {dim.name} ({', '.join(axes[:3])}) would prove it"
    )
