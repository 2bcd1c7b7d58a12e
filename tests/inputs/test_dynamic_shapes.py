"""dynamic_shapes and dynamic_axes in every form, into each other and into named dimensions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim

import onnxpatch
from onnxpatch import InputError
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.axis_specs import parsed
from onnxpatch.inputs.dims import dynamic_dims, shape_at
from onnxpatch.inputs.leaves import Inputs
from tests.verified_models import Nested, Right


def two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x


X, Y = torch.zeros(2, 3, 8, 8), torch.zeros(2, 5)
NAMES = ({0: "b", 2: "h"}, {0: "b"})


@pytest.mark.parametrize(
    "given",
    [
        NAMES,
        {"x": {0: "b", 2: "h"}, "y": {0: "b"}},
        {"y": {0: "b"}, "x": {0: "b", 2: "h"}},
        (["b", None, "h", None], ("b", None)),
        ({0: "b", -2: "h"}, {0: "b", 1: 5}),
        ({0: Dim("b"), 2: Dim("h", min=2, max=64)}, {0: Dim("b")}),
    ],
    ids=["tuple", "dict", "shuffled", "lists", "negative-and-int", "Dim"],
)
def test_every_form_says_the_same(given: Any) -> None:
    inputs = Inputs(two, (X, Y))
    specs = shapes.read_shapes(inputs, given)
    dims = {d.name: (d.size, [(leaf, axis) for leaf, axis, _ in d.places]) for d in dynamic_dims(inputs, specs)}
    assert dims == {"b": (2, [(0, 0), (1, 0)]), "h": (8, [(0, 2)])}
    axes = shapes.to_axes(specs, inputs.graph_leaves("trace"), ["x", "y"])
    assert axes == {"x": {0: "b", 2: "h"}, "y": {0: "b"}}


def test_bounds_and_derived_dims() -> None:
    base = Dim("s", min=2, max=20)
    inputs = Inputs(two, (X, Y))
    (dim,) = dynamic_dims(inputs, shapes.read_shapes(inputs, ({2: 2 * base}, None)))
    assert (dim.name, dim.size, dim.minimum, dim.maximum) == ("s", 4, 2, 20)
    assert dim.places[0].size.at({"s": 5}) == 10
    assert dim.allows(20) and not dim.allows(21) and not dim.allows(1)


def test_hints_are_unnamed_and_static_ones_stay() -> None:
    inputs = Inputs(two, (X, Y))
    specs = shapes.read_shapes(inputs, ({0: Dim.DYNAMIC, 2: Dim.AUTO, 3: Dim.STATIC}, {0: Dim.DYNAMIC}))
    dims = dynamic_dims(inputs, specs)
    assert [(d.name, d.named, len(d.places)) for d in dims] == [("x_dim0", False, 2), ("x_dim2", False, 1)]


def test_axes_by_given_and_by_own_name() -> None:
    inputs = Inputs(two, (X, Y))
    for axes, names in (({"in0": {0: "b"}}, ["in0", "in1"]), ({"x": {0: "b"}}, None), ({"in0": [0]}, ["in0", "in1"])):
        specs = shapes.read_shapes(inputs, None, axes, names, "trace")
        assert list(specs[0]) == [0] and specs[1] == {}


def test_axes_of_outputs_are_no_inputs() -> None:
    inputs = Inputs(two, (X, Y))
    specs = shapes.read_shapes(inputs, None, {"x": {0: "b"}, "out": {0: "b"}}, None, "dynamo", ["out"])
    assert specs == [{0: "b"}, {}]


def nested() -> Inputs:
    x = torch.zeros(2, 3)
    return Inputs(Nested(), (x, [x, x]), {"mask": None, "named": {"k": x}})


def test_nested_arguments_are_named_and_found() -> None:
    inputs = nested()
    assert [leaf.name for leaf in inputs.graph_leaves("dynamo")] == ["x", "pair_0", "pair_1", "named_k"]
    specs = shapes.read_shapes(
        inputs, {"x": {0: "b"}, "pair": [{0: "b"}, {0: "b"}], "named": {"k": {0: "b"}}, "mask": None}
    )
    (dim,) = dynamic_dims(inputs, specs)
    assert len(dim.places) == 4
    tree = shapes.to_shapes(inputs, specs)
    assert tree == {"x": {0: "b"}, "pair": [{0: "b"}, {0: "b"}], "mask": None, "named": {"k": {0: "b"}}}


def test_axes_of_nested_arguments_by_flattened_name() -> None:
    specs = shapes.read_shapes(nested(), None, {"pair_1": {0: "b"}, "named_k": {1: "n"}}, None, "trace")
    assert [dict(s) for s in specs] == [{}, {}, {0: "b"}, {}, {1: "n"}]


def test_numbers_are_graph_inputs_of_trace_only() -> None:
    inputs = Inputs(lambda x, k, flag: x, (X, 3, True))
    assert [leaf.name for leaf in inputs.graph_leaves("dynamo")] == ["x"]
    assert [leaf.name for leaf in inputs.graph_leaves("trace")] == ["x", "k", "flag"]


def test_variadic_forward() -> None:
    inputs = Inputs(lambda *tensors, **named: tensors, (Y, Y), {"extra": Y})
    specs = shapes.read_shapes(inputs, ({0: "b"}, {0: "b"}))
    assert [leaf.name for leaf in inputs.leaves] == ["tensors_0", "tensors_1", "extra"]
    assert [dict(s) for s in specs] == [{0: "b"}, {0: "b"}, {}]


@pytest.mark.parametrize(
    ("args", "given", "read"),
    [
        ((Y,), (({0: "b"},),), [{0: "b"}]),
        ((Y,), ([["b", None]],), [{0: "b", 1: None}]),
        ((Y,), ({0: "b"},), [{0: "b"}]),
        ((Y,), (("b", None),), [{0: "b", 1: None}]),
        ((torch.zeros(4),), (("b",),), [{0: "b"}]),
        (([Y],), ([{0: "b"}],), [{0: "b"}]),
        (([Y],), (([{0: "b"}],),), [{0: "b"}]),
        (([Y, Y],), (([{0: "b"}, None],),), [{0: "b"}, {}]),
        (([Y, Y],), ([{0: "b"}, None],), [{0: "b"}, {}]),
        (({"k": Y},), (({"k": {0: "b"}},),), [{0: "b"}]),
        (({"k": Y},), ({"k": {0: "b"}},), [{0: "b"}]),
        ((Y, Y), (({0: "b"}, None),), [{0: "b"}, {}]),
    ],
)  # fmt: skip
def test_variadic_forward_with_torchs_own_form(args: Any, given: Any, read: Any) -> None:
    inputs = Inputs(lambda *tensors: tensors, args)
    specs = shapes.read_shapes(inputs, given)
    assert [dict(s) for s in specs] == read
    # torch.export takes what is made of it.
    assert list(shapes.to_shapes(inputs, specs) or ()) == ["tensors"]


def test_variadic_forward_with_torchs_own_form_after_another_argument() -> None:
    inputs = Inputs(lambda x, *tensors: tensors, (X, Y))
    for given in (({0: "b"}, ({0: "b"},)), ({0: "b"}, {0: "b"})):
        assert [dict(s) for s in shapes.read_shapes(inputs, given)] == [{0: "b"}, {0: "b"}]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"z": {0: "b"}}, "names 'z', but the call gives only x"),
        ({0: "b"}, r"write \({0: 'b'},\) for the first argument, or {'x': {0: 'b'}}"),
        (({7: "b"},), "no axis 7"),
        (({0: 3},), "declared 3, the example has 2"),
        (({0: Dim("b", min=4)},), "outside the bounds of its Dim: 4 to any"),
        (({0: 1.5},), "is not understood: give a name"),
        (({0: "b"}, {0: "b"}), "has 2 entries, the call gives 1"),
        ("b", "must be a dict by argument name or a tuple"),
        (({0: "b", 2: "b"},), "dimension 'b' is 2 in one input of the example and 8"),
    ],
)
def test_what_cannot_be_is_said(given: Any, says: str) -> None:
    inputs = Inputs(Right(), (X,))
    with pytest.raises(InputError, match=says):
        dynamic_dims(inputs, shapes.read_shapes(inputs, given))


def test_both_conventions_at_once_are_refused() -> None:
    with pytest.raises(InputError, match="give one"):
        shapes.read_shapes(Inputs(Right(), (X,)), ({0: "b"},), {"x": {0: "b"}})


def test_unknown_axes_name_lists_the_inputs() -> None:
    with pytest.raises(InputError, match="names 'y'; the inputs are x"):
        shapes.read_shapes(Inputs(Right(), (X,)), None, {"y": {0: "b"}})


def test_parts_of_an_argument_in_its_place_are_put_into_it() -> None:
    with pytest.raises(InputError, match=r"gives only args: write {'args': {'a': {0: 'b'}}}"):
        shapes.read_shapes(Inputs(lambda args: args, ({"a": Y, "c": Y},)), {"a": {0: "b"}})


def test_arguments_that_do_not_fit_the_signature() -> None:
    with pytest.raises(InputError, match=r"(?s)do not fit Right\.forward.*too many positional"):
        Inputs(Right(), (X, X))


# ------------------------------------------------------------------ sizes that follow from others
MASK, NEW, PAST = torch.ones(2, 9), torch.zeros(2, 3), torch.zeros(2, 4, 6, 8)


def step(tokens: torch.Tensor, mask: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
    return tokens


def related(mask_axis: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
    inputs = Inputs(step, (NEW, MASK, PAST))
    specs = shapes.read_shapes(inputs, ({0: "b", 1: "n"}, {0: "b", 1: mask_axis}, {0: "b", 2: "past"}))
    dims = dynamic_dims(inputs, specs)
    assert shape_at(inputs.leaves[1], dims, {"n": 3, "past": 6}) == [2, 9]
    return [(d.name, d.size, [(p.leaf, p.axis) for p in d.places]) for d in dims]


@pytest.mark.parametrize("text", ["past+n", "n + past", "2*n + (past - n)", " past + n"])
def test_a_sum_is_a_place_of_each_of_its_dimensions(text: str) -> None:
    assert related(text) == [
        ("b", 2, [(0, 0), (1, 0), (2, 0)]),
        ("n", 3, [(0, 1), (1, 1)]),
        ("past", 6, [(2, 2), (1, 1)]),
    ]


@pytest.mark.parametrize(
    ("text", "root", "at_ten"), [("2*n+3", "n", 23), ("past + 3", "past", 13), ("n+6", "n", 16), ("12-n", "n", 2)]
)
def test_multiples_and_constants(text: str, root: str, at_ten: int) -> None:
    assert (1, 1) in next(places for name, _, places in related(text) if name == root)
    assert parsed(text, "axis 1 of mask", {"n", "past"}).at({"n": 10, "past": 10}) == at_ten


def test_a_name_that_is_nowhere_alone_is_solved_for() -> None:
    (dim,) = dynamic_dims(
        inputs := Inputs(step, (NEW, MASK, PAST)), shapes.read_shapes(inputs, ({1: "n-1"}, None, None))
    )
    assert (dim.name, dim.size, dim.size_of({0: (2, 7)})) == ("n", 4, 8)


@pytest.mark.parametrize("name", ["batch-size", "height/8", "batch size", "x.0"])
def test_a_word_with_a_hyphen_is_a_name(name: str) -> None:
    inputs = Inputs(step, (NEW, MASK, PAST))
    (dim,) = dynamic_dims(inputs, shapes.read_shapes(inputs, ({1: name}, None, None)))
    assert (dim.name, dim.size) == (name, 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("past+m", "no axis is called 'm' by itself.*the names are b, n, past"),
        ("pats+n", "no axis is called 'pats' by itself.*did you mean 'past'"),
        ("past*n", "a product of two sizes is not understood"),
        ("past//2", "a division is not understood: name the smaller size"),
        ("max(past)", r"max\(past\) is not understood"),
        ("past+", "is no expression of sizes"),
        ("4+5", "names no dimension"),
        ("past+2*n", "is 9 in the example, past.2.n is 12"),
        ("2*n", "is 9 in the example, a size that 2.n never has"),
        ("3*past", "dimension 'past' is 3 in one input of the example and 6 in past"),
    ],
)
def test_a_bad_expression_is_an_input_error(text: str, says: str) -> None:
    with pytest.raises(InputError, match=f"(?s)axis 1 of mask.*{says}|{says}"):
        related(text)


class Cache:
    def __init__(self):
        self.keys = torch.ones(2, 3)


def test_what_torch_cannot_open_has_no_dynamic_shape():
    """The message says what it is and how to have it opened; a number needs no such advice."""

    class Model(torch.nn.Module):
        def forward(self, x, past, n):
            return x + past.keys * n

    given = (torch.ones(2, 3), Cache(), 3)
    with pytest.raises(InputError, match=r"(?s)past is .*\.Cache, which cannot .*register_pytree_node"):
        onnxpatch.export(Model().eval(), given, dynamic_shapes={"past": {0: "B"}})
    with pytest.raises(InputError, match=r"(?s)n is int, which cannot .*: only tensors have one"):
        onnxpatch.export(Model().eval(), given, dynamic_shapes={"n": {0: "B"}})
