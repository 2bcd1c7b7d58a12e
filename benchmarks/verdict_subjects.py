"""Models for `benchmarks.verdicts`, each with inputs that nothing of the kit has chosen: sizes, data, branches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks import case as families
from benchmarks.devious import everything
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import DynamicDim, dynamic_dims, shape_at
from onnxpatch.inputs.leaves import Inputs

Args = tuple[Any, ...]
IMAGE = ({0: "b", 2: "h", 3: "w"},)
_ROUGH = ("ill_conditioned", "nearly_equal")  # kinds whose answers hang on the last digit


@dataclass
class Subject:
    """inputs: the example first, then the held-out ones. reference: (eager's output, args) -> what the graph gives
    with branches=True. exact: whether the inputs are chosen to the last digit, so that one rounding makes other data
    of them."""

    name: str
    model: torch.nn.Module
    inputs: Sequence[Args]
    dynamic: Any
    reference: Callable[[Any, Args], Any] | None = None
    exact: bool = False


def devious() -> Iterator[Subject]:
    """Models that go wrong where nobody looks."""
    for name, one in everything():
        torch.manual_seed(0)
        reference = (lambda output, args: output) if one.branches else None
        yield Subject(name, one.build().eval(), one.inputs(), one.dynamic, reference, exact=not name.startswith(_ROUGH))


def small() -> Iterator[Subject]:
    """The tests' own: branches, also on sizes far away, one ailing part among sound ones, sizes that freeze."""
    from tests import verified_models
    from tests.control_flow import branch_models, counted_loops, models_with_nodes
    from tests.control_flow.branch_cases import RIGHT
    from tests.diagnosis import failing_models
    from tests.verification import far_branches

    assert branch_models and counted_loops and models_with_nodes  # their cases are registered by the import
    for case in RIGHT:
        yield Subject(f"branches: {case.name}", case.model(), case.inputs, case.dynamic, case.reference)
    for sick in failing_models.CASES:
        if sick.status != "silent":
            continue
        model = sick.build().eval()
        given = [one[0] if len(one) == 2 and isinstance(one[0], tuple) else one for one in sick.data]
        made = [sick.args(), *given, *held_out(model, sick.args(), sick.dynamic_shapes)]
        # Named after both, since one part may ail in other hosts under another exporter.
        name = f"ailing: {sick.name}" + (f", {sick.exporter}" if sick.exporter != "trace" else "")
        yield Subject(name, model, made, sick.dynamic_shapes)
    for model in (
        verified_models.NativeSize(),
        verified_models.FrozenScale(),
        verified_models.Right(),
        verified_models.DataBranch(),
    ):
        args = (torch.rand(2, 3, 32, 32),)
        yield Subject(
            f"sizes: {type(model).__name__}", model.eval(), [args, *held_out(model.eval(), args, IMAGE, 8)], IMAGE
        )
    for build, shape, dynamic, _, other in far_branches.CASES:
        inputs = [(torch.randn(shape),), (torch.randn(other),)]
        yield Subject(f"far: {build.__name__}", build().eval(), inputs, dynamic, lambda output, args: output)


def of_family(name: str, every: int, only: str = "") -> Iterator[Subject]:
    """One case in `every` of a coverage family, at the family's own inputs and at multiples of the example's sizes."""
    for label, build in list(families.family(name).CASES.items())[::every]:
        if only not in f"{name}: {label}":
            continue
        torch.manual_seed(0)
        case = build()
        more = held_out(case.model, case.inputs[0], case.dynamic_shapes, 8)
        yield Subject(f"{name}: {label}", case.model, [*case.inputs, *more], case.dynamic_shapes)


def held_out(model: torch.nn.Module, args: Args, dynamic: Any, step: int = 1) -> list[Args]:
    """Numbers of either sign and of several magnitudes, at a grid of sizes and at each size alone, where eager takes
    them. step: of the sizes tried alone."""
    inputs = Inputs(model, args)
    dims = dynamic_dims(inputs, shapes.read_shapes(inputs, dynamic, None, None, "trace"))
    generator = torch.Generator().manual_seed(7)
    made = []
    for sizes, draw in itertools.chain(
        (({}, draw) for draw in _DRAWS),
        ((sizes, draw) for sizes in _sizes(dims, step) for draw in _DRAWS[:2]),
    ):
        values = [_drawn(leaf.value, shape_at(leaf, dims, sizes), draw, generator) for leaf in inputs.leaves]
        rebuilt, kwargs = inputs.rebuild(values)
        if not kwargs and families.accepts(model, rebuilt):
            made.append(rebuilt)
    return made


_DRAWS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x, lambda x: -x, torch.abs, lambda x: -x.abs(), lambda x: 3 * x + 3, lambda x: 3 * x - 3, lambda x: 30 * x
]  # fmt: skip


def _sizes(dims: Sequence[DynamicDim], step: int) -> Iterator[dict[str, int]]:
    factors = (0.5, 1.5, 2) if len(dims) > 1 else (3,)
    for chosen in itertools.product((1, *factors), repeat=len(dims)):
        yield {dim.name: max(1, int(dim.size * factor)) for dim, factor in zip(dims, chosen, strict=True)}
    for dim in dims:
        yield from ({dim.name: n} for n in range(step, 2 * dim.size + 3, min(step, dim.size)) if n != dim.size)


def _drawn(
    value: Any, shape: list[int], draw: Callable[[torch.Tensor], torch.Tensor], generator: torch.Generator
) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_floating_point():
        return draw(torch.randn(shape, generator=generator)).to(value.dtype)
    if value.dtype == torch.bool:
        return draw(torch.randn(shape, generator=generator)) > 0
    for axis, size in enumerate(shape):  # whole numbers: the example's own, cut or repeated
        value = value.index_select(axis, torch.arange(size) % max(1, value.shape[axis]))
    return value
