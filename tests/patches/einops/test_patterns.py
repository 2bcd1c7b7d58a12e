"""Generated patterns, held against einops itself: plan, torch code, and the nodes as onnxruntime runs them."""

from __future__ import annotations

import io

import einops
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxpatch
from onnxpatch.formulas.einops.axes import plan_axes
from onnxpatch.formulas.einops.rearrange import rearrange_axes
from onnxpatch.formulas.einops.reduce_and_repeat import reduce_axes, repeat_axes

pytestmark = pytest.mark.exports

quick = settings(derandomize=True, database=None)
REDUCTIONS = ("min", "max", "sum", "mean", "prod")


def grouped(draw, axes: list[str], units: bool = True) -> list[list[str]]:
    """The axes in order, some of them in one dimension, and here and there a dimension of length 1."""
    groups: list[list[str]] = []
    for axis in axes:
        if groups and len(groups[-1]) < 3 and draw(st.booleans()):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if units and draw(st.integers(0, 3)) == 0:
        groups.insert(draw(st.integers(0, len(groups))), [])
    return groups


def written(groups: list[list[str]]) -> str:
    texts = [group[0] if len(group) == 1 else f"({' '.join(group)})" if group else "1" for group in groups]
    return " ".join(texts)


class Drawn:
    """A pattern, the lengths handed in, and the shape that each choice of sizes gives."""

    def __init__(self, draw, operation: str) -> None:
        axes = [f"a{k}" for k in range(draw(st.integers(1, 5)))]
        self.left = grouped(draw, axes)
        kept = [axis for axis in axes if operation != "reduce" or draw(st.booleans())]
        order = list(draw(st.permutations(kept)))
        self.added = [f"n{k}" for k in range(draw(st.integers(1, 2)))] if operation == "repeat" else []
        for axis in self.added:
            order.insert(draw(st.integers(0, len(order))), axis)
        self.pattern = f"{written(self.left)} -> {written(grouped(draw, order))}"
        self.fixed = {group[k]: draw(st.integers(1, 3)) for group in self.left for k in self._known(draw, group)}
        self.fixed |= {axis: draw(st.integers(1, 3)) for axis in self.added}
        self.free = [axis for axis in axes if axis not in self.fixed]

    @staticmethod
    def _known(draw, group: list[str]) -> list[int]:
        """All axes of a dimension but one at most."""
        open_place = draw(st.integers(0, len(group) - 1)) if group else -1
        return [place for place in range(len(group)) if place != open_place]

    def shape(self, sizes: list[int]) -> list[int]:
        lengths = {**self.fixed, **dict(zip(self.free, sizes, strict=False))}
        return [int(np.prod([lengths[axis] for axis in group], dtype=int)) for group in self.left]

    @property
    def dynamic(self) -> dict[int, str]:
        return {dim: f"d{dim}" for dim, group in enumerate(self.left) if any(axis in self.free for axis in group)}


class Call(torch.nn.Module):
    def __init__(self, drawn: Drawn, operation: str) -> None:
        super().__init__()
        self.kind = operation if operation in ("rearrange", "repeat") else "reduce"
        self.operation, self.pattern, self.lengths = operation, drawn.pattern, drawn.fixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        plan = plan_axes(self.pattern, self.kind, tuple(self.lengths), x.dim())
        given_lengths = tuple(self.lengths.values())
        if self.kind == "reduce":
            return reduce_axes(x, plan, self.operation, given_lengths)
        return (rearrange_axes if self.kind == "rearrange" else repeat_axes)(x, plan, given_lengths)

    def __repr__(self) -> str:
        return f"{self.operation} {self.pattern!r} {self.lengths}"

    def reference(self, x: torch.Tensor) -> torch.Tensor:
        more = (self.operation,) if self.kind == "reduce" else ()
        return getattr(einops, self.kind)(x, self.pattern, *more, **self.lengths)


@st.composite
def calls(draw, operations: tuple[str, ...] = ("rearrange", "repeat", *REDUCTIONS)):
    operation = draw(st.sampled_from(operations))
    drawn = Drawn(draw, "reduce" if operation in REDUCTIONS else operation)
    return drawn, Call(drawn, operation)


def run_onnx(model: torch.nn.Module, xs: list[torch.Tensor], axes: dict[int, str], dynamo: bool) -> list[np.ndarray]:
    file = io.BytesIO()
    if dynamo:
        torch.onnx.export(
            model, (xs[0],), file, dynamo=True, dynamic_shapes=(axes,), input_names=["x_in"], verbose=False
        )
    else:
        torch.onnx.export(
            model, (xs[0],), file, dynamo=False, dynamic_axes={"x_in": axes}, input_names=["x_in"], opset_version=18
        )
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    return [session.run(None, {"x_in": x.numpy()})[0] for x in xs]


def agree(model: Call, xs: list[torch.Tensor], results: list) -> None:
    for x, result in zip(xs, results, strict=True):
        want = model.reference(x)
        assert tuple(result.shape) == tuple(want.shape), (model.pattern, model.lengths, tuple(x.shape))
        torch.testing.assert_close(torch.as_tensor(result), want, msg=lambda told: f"{model.pattern} {told}")


@settings(quick, max_examples=300)
@given(calls(), st.lists(st.integers(1, 4), min_size=5, max_size=5))
def test_torch_code(case, sizes):
    drawn, model = case
    xs = [torch.rand(drawn.shape(sizes)) + 0.5]
    agree(model, xs, [model(x) for x in xs])


@settings(quick, max_examples=100)
@given(calls(("rearrange", "repeat", "max", "sum")), st.lists(st.integers(2, 4), min_size=5, max_size=5))
def test_nodes_under_trace(case, sizes):
    drawn, model = case
    xs = [torch.rand(drawn.shape(other)) + 0.5 for other in (sizes, sizes[::-1], [1, *sizes[1:]], [5] * 5)]
    agree(model, xs, run_onnx(model, xs, drawn.dynamic, dynamo=False))


class Written(torch.nn.Module):
    """A pattern as it is written, through the plan."""

    def __init__(self, operation: str, pattern: str, **lengths: int) -> None:
        super().__init__()
        self.operation, self.pattern, self.lengths = operation, pattern, lengths

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind = "repeat" if self.operation == "repeat" else "reduce"
        plan, lengths = plan_axes(self.pattern, kind, tuple(self.lengths), x.dim()), tuple(self.lengths.values())
        return repeat_axes(x, plan, lengths) if kind == "repeat" else reduce_axes(x, plan, self.operation, lengths)


@pytest.mark.parametrize(
    ("model", "nodes"),
    [
        (Written("repeat", "1 a b c -> 1 a b (n c)", n=1), ["Identity"]),
        (Written("repeat", "1 a b c -> 1 a (n b) (m c)", n=1, m=2), ["Tile"]),
        (Written("max", "1 a b (c n) -> 1 a b c", n=1), ["Identity"]),
        (Written("mean", "1 a b (c n) -> a (b c)", n=1), ["Flatten"]),
    ],
    ids=lambda value: getattr(value, "pattern", ""),
)
def test_lengths_of_one_leave_no_node_and_stop_no_pass(model, nodes):
    x = torch.rand(1, 2, 3, 4)
    file = io.BytesIO()
    torch.onnx.export(
        model, (x,), file, dynamo=False, dynamic_axes={"x": {1: "a", 2: "b", 3: "c"}}, input_names=["x"],
        opset_version=18,
    )  # fmt: skip
    made = [node.op_type for node in onnx.load_from_string(file.getvalue()).graph.node]
    assert [name for name in made if name != "Constant"] == nodes
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for other in (x, torch.rand(1, 5, 2, 3)):
        more = () if model.operation == "repeat" else (model.operation,)
        want = getattr(einops, "reduce" if more else "repeat")(other, model.pattern, *more, **model.lengths)
        np.testing.assert_allclose(session.run(None, {"x": other.numpy()})[0], want.numpy(), rtol=1e-6)


@pytest.mark.slow  # twenty seconds; under trace it stays
@settings(quick, max_examples=8)
@given(calls(("rearrange", "repeat", "mean")), st.lists(st.integers(2, 4), min_size=5, max_size=5))
def test_nodes_under_dynamo(case, sizes):
    drawn, model = case
    xs = [torch.rand(drawn.shape(other)) + 0.5 for other in (sizes, sizes[::-1], [1, *sizes[1:]], [5] * 5)]
    agree(model, xs, run_onnx(model, xs, drawn.dynamic, dynamo=True))


@settings(quick, max_examples=40)
@given(calls(("rearrange",)), st.lists(st.integers(2, 4), min_size=5, max_size=5))
def test_scripted_layer(case, sizes):
    drawn, model = case
    layer = torch.jit.script(onnxpatch.CustomRearrange(drawn.pattern, **drawn.fixed))
    xs = [torch.rand(drawn.shape(sizes))]
    agree(model, xs, [layer(x) for x in xs])


@settings(quick, max_examples=200)
@given(st.text(alphabet="ab (.)->1 2_", max_size=16), st.integers(0, 3))
def test_what_einops_refuses_has_no_plan(pattern, ndim):
    try:
        einops.rearrange(np.zeros((2,) * ndim), pattern)
        taken = True
    except Exception:
        taken = False
    if taken:
        return
    with pytest.raises(Exception) as caught:
        plan = plan_axes(pattern, "rearrange", (), ndim)
        assert plan.refuses((2,) * ndim, ()), "planned, and the sizes fit: einops refuses it"
        raise ValueError("refused by its sizes")
    assert not isinstance(caught.value, AssertionError), pattern
