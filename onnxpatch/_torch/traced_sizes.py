"""Tells, under torch.jit.trace, which sizes are constants of the model and which depend on the inputs.

A trace has numbers in place of symbols: a 3 may be three channels, or the batch of the example. To tell them apart,
the operators from which a size was computed are run once more, on fake tensors whose declared dimensions are symbols.
This is done only when a patch asks about a size.

    x [batch, 64], batch dynamic        x.shape[1] // 4 is 16        x.shape[0] // 4 depends on the input

This needs private torch APIs: the trace's graph (`TracingState.graph`, `_get_value_trace`, a node's `schema`) and what
`FakeWorld` uses. If one of them moves, or an operator cannot be run again, the sizes computed from it count as dynamic.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from onnxpatch._torch.cond import BY_DATA, MADE_UP, free_symbols, operations
from onnxpatch._torch.fake_sizes import FakeWorld, traced_dynamic_axes
from onnxpatch._torch.function_modes import tracing_paused
from onnxpatch._torch.kernel_checks import sized_by_data
from onnxpatch._torch.traced_shapes import ARITHMETIC, declared_extent, declared_size, result_shape
from onnxpatch.process import undone

_NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)
_SAME = ("prim::NumToTensor", "aten::Int", "aten::Float", "aten::Bool", "aten::ScalarImplicit", "aten::IntImplicit",
         "aten::FloatImplicit", "aten::item", "aten::detach", "aten::clone")  # fmt: skip

_MOST_OPERATIONS = 30  # of an expression; Swin's and DETR's have fewer

_SIZES: dict[str, Callable[..., Any]] = {
    "aten::size": lambda x, *dim: x.shape[dim[0]] if dim else list(x.shape),
    "aten::numel": lambda x: x.numel(),
    "aten::dim": lambda x: x.dim(),
    "aten::len": lambda x: x.shape[0] if isinstance(x, torch.Tensor) else len(x),
}

# Those of which a mask or a number decides how much is left.
_BY_DATA = frozenset(
    f"aten::{name}" for name in ("index", "masked_select", "nonzero", "slice", "narrow", "arange", "repeat_interleave")
)


# Nodes of the graph that hand on what they are given.
_HANDS_ON = frozenset(
    ("prim::ListConstruct", "prim::TupleConstruct", "prim::ListUnpack", "prim::TupleUnpack", "prim::NumToTensor")
)
# Those that torch does not tag: some made of others.
_CHOOSES = frozenset(("aten::nonzero_numpy", "aten::tensor_split", "aten::repeat_interleave"))


class _UnknownError(Exception):
    """A value of the graph cannot be computed again."""


class _Running(threading.local):
    def __init__(self) -> None:
        self.sizes: _Sizes | None = None


_running = _Running()


@contextlib.contextmanager
def static_sizes_known() -> Iterator[None]:
    """Inside the block, for the trace that runs in this thread, `fixed_number` has answers."""
    before = _running.sizes
    with undone(lambda: setattr(_running, "sizes", before)):
        _running.sizes = _Sizes()
        yield


def sizes_are_known() -> bool:
    """Whether this thread is inside `static_sizes_known`."""
    return _running.sizes is not None


def fixed_number(tensor: torch.Tensor) -> int | float | bool | None:
    """The value of a 0-d tensor of the running trace that was computed from sizes, if it is the same for all inputs."""
    # Read off the example: it is the same there as anywhere.
    return _answer(tensor, lambda sizes, value: tensor.item() if sizes.fixed(value) else None)


def number_in_symbols(tensor: torch.Tensor) -> int | float | bool | torch.SymInt | torch.SymFloat | None:
    """The value of a 0-d tensor of the running trace that was computed from sizes; None where it is not known.

    Symbols stand for the declared dimensions.
    """
    return _answer(tensor, lambda sizes, value: sizes.number(value))


def symbolic_shape(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The sizes of a tensor of the running trace, in symbols; () where they are not known. It adds no node."""
    return _answer(tensor, lambda sizes, value: sizes.shape(value)) or ()


def sizes_without_data(tensor: torch.Tensor) -> bool:
    """Whether the graph of the running trace has nothing above a tensor by which data might decide its sizes.

    A walk over its nodes, which takes far less than their symbols do.
    """
    return bool(_answer(tensor, lambda sizes, value: sizes.without_data(value)))


def declared_axes(tensor: torch.Tensor, axes: Iterable[int]) -> bool:
    """Whether nodes of the running trace's graph say at once that these axes of a tensor have the same size always."""
    return bool(_answer(tensor, lambda sizes, value: sizes.declared(value, axes)))


def chosen_in_a_body(tensor: torch.Tensor) -> bool:
    """Whether a tensor's sizes may come from data inside the body of a loop or branch, which has a trace of its own.

    What the body is given counts as of sizes that data does not decide.
    """
    sizes, state = _running.sizes, torch._C._get_tracing_state()
    if sizes is None or sizes.is_of(state):
        return False
    return bool(_answer(tensor, lambda body, value: not body.without_data(value), _Sizes()))


def _answer(tensor: torch.Tensor, ask: Callable[[_Sizes, Any], Any], body: _Sizes | None = None) -> Any:
    """What `ask` says of the tensor's value in the graph, with the trace paused; None where nothing is known of it.

    body: asked in place of the model's own trace.
    """
    sizes, state = body or _running.sizes, torch._C._get_tracing_state()
    if sizes is None or state is None:
        return None
    try:
        value = torch._C._get_value_trace(tensor)  # type: ignore[attr-defined]
        with tracing_paused():
            return ask(sizes.of(state), value)
    except Exception:  # an operator that cannot be run again: the size counts as dynamic, which is right too
        return None


class _Sizes:
    """The symbolic values of one trace's graph, by the number of the value; filled as they are asked for."""

    def __init__(self) -> None:
        self._world = FakeWorld()
        self._static: dict[tuple[tuple[int, ...], torch.dtype], torch.Tensor] = {}
        self._known: dict[int, Any] = {}
        self._symbols: dict[Any, Any] = {}
        self._state: Any = None
        self._inputs: dict[int, tuple[int, frozenset[int] | None]] = {}
        self._plain: set[tuple[int, bool]] = set()

    def of(self, state: Any) -> _Sizes:
        """This object, set up for the first trace that asks. Raises _UnknownError for a trace inside that one."""
        if self._state is None:
            self._state, axes = state, traced_dynamic_axes()
            for place, value in enumerate(state.graph().inputs()):
                self._inputs[value.unique()] = (place, None if axes is None else axes.get(place, frozenset()))
        # The body of a loop or branch is traced inside the model's trace, with inputs that the exporter did not name.
        if state is not self._state:
            raise _UnknownError
        return self

    def is_of(self, state: object) -> bool:
        """Whether this is a trace that `of` takes."""
        return self._state is None or self._state is state

    def fixed(self, value: object) -> bool:
        """Whether a value of the graph is a number, and the same for all inputs."""
        found = self.number(value)
        return found is not None and not free_symbols(found)

    def number(self, value: Any) -> Any:
        """A value of the graph that is a number, in symbols of the declared dimensions; None if it is none."""
        found = self._value(value)
        return found if isinstance(found, _NUMBERS) else None

    def shape(self, value: Any) -> tuple[Any, ...]:
        """The sizes of a value of the graph that is a tensor."""
        return tuple(getattr(self._value(value), "shape", ()))

    def declared(self, value: Any, axes: Iterable[int]) -> bool:
        """Whether a parameter, or a number in the graph, gives these axes of a value their sizes."""
        return all(declared_extent(value, axis, self._fixed_size) is not None for axis in axes)

    def without_data(self, wanted: Any) -> bool:
        """Whether no selection by data, and no number from data, is among what a tensor of the graph is made of."""
        pending, seen = [(wanted, False)], set[tuple[int, bool]]()  # (value, whether it stands for a number)
        while pending:
            value, number = pending.pop()
            key, node = (value.unique(), number), value.node()
            if key in seen or key in self._plain or node.kind() == "prim::Constant":
                continue
            seen.add(key)
            if value.unique() in self._inputs:
                if number:
                    return False
            elif node.kind() in _SIZES:
                pending.append((next(node.inputs()), False))
            elif number:
                pending += ((one, True) for one in node.inputs())
            elif _may_choose(node):
                return False
            else:
                pending += ((one, node.kind() == "aten::arange" or not _holds_tensors(one)) for one in node.inputs())
        self._plain |= seen
        return True

    def _value(self, wanted: Any) -> object:
        # A stack of its own: recursion would go as deep as the graph does, past Python's limit.
        pending = [wanted]
        while pending:
            value = pending[-1]
            node = value.node()
            missing = [one for one in node.inputs() if one.unique() not in self._known]
            if value.unique() in self._known:
                pending.pop()
            elif node.kind() == "aten::size" and (size := declared_size(node, self._fixed_size)) is not None:
                self._known[value.unique()] = size
                pending.pop()
            elif missing and value.unique() not in self._inputs:
                pending += missing
            else:
                self._evaluate(value, node)
                pending.pop()
        found = self._known[wanted.unique()]
        if isinstance(found, _UnknownError):
            raise found
        return found

    def _fixed_size(self, value: Any, axis: int) -> int | None:
        """The size of an axis of one of the graph's inputs, if that is a parameter or was declared to stay."""
        _, axes = self._inputs.get(value.unique(), (0, None))
        sizes = value.type().sizes()
        return sizes[axis] if axes is not None and axis not in axes and sizes is not None else None

    def _evaluate(self, value: Any, node: Any) -> None:
        outputs = [value] if value.unique() in self._inputs else list(node.outputs())
        try:
            results = self._results(value, node)
        except Exception:
            # What cannot be run again does not spoil the rest: a tensor of unknown sizes still has its dimensions.
            results = [self._with_other_sizes(node, self._anything(output)) for output in outputs]
        for output, result in zip(outputs, results, strict=True):
            self._known[output.unique()] = self._world.shared.tensor(self._shortened(result))

    def _shortened(self, result: Any) -> Any:
        """The same with a symbol of its own for every long expression, the same one wherever it stands.

        Expressions that go from layer to layer (windows of windows) double with each, and torch simplifies them at
        every operator: minutes for an answer that says "dynamic".
        """
        if isinstance(result, torch.SymInt):
            return self._symbol_for(result)
        if not isinstance(result, torch.Tensor) or all(operations(size) <= _MOST_OPERATIONS for size in result.shape):
            return result
        with self._world.running():
            return result.new_empty([self._symbol_for(size) for size in result.shape])

    def _symbol_for(self, size: Any) -> Any:
        if operations(size) <= _MOST_OPERATIONS or (example := size.node.hint) is None:
            return size
        if size.node.expr not in self._symbols:
            like = torch.empty(1, device="meta").expand(example)
            number = BY_DATA // 2 + len(self._symbols)
            self._symbols[size.node.expr] = self._world.fake(like, frozenset({0}), number).shape[0]
        return self._symbols[size.node.expr]

    def _results(self, value: Any, node: Any) -> list[object]:
        if value.unique() in self._inputs:
            place, axes = self._inputs[value.unique()]
            return [self._fake(value, axes, place)]
        kind = node.kind()
        if kind == "prim::Constant":
            constant = value.toIValue()
            if isinstance(constant, torch.device):
                return [torch.device("cpu")]  # where all fake tensors are
            return [self._world.mode.from_tensor(constant.cpu()) if isinstance(constant, torch.Tensor) else constant]
        given = [self._known[one.unique()] for one in node.inputs()]
        if any(isinstance(one, _UnknownError) for one in given):
            raise _UnknownError
        if kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            return [given]
        if kind in ("prim::ListUnpack", "prim::TupleUnpack"):
            return list(given[0])
        return self._run(kind, node, given)

    def _run(self, kind: str, node: Any, given: list[Any]) -> list[Any]:
        """The results of one operator, or of an autograd.Function of the kit's that says how it is repeated."""
        if kind == "prim::PythonOp":
            scalars, operands = iter(node.scalar_args()), iter(given)
            # cconv has a letter for each argument: c for a Python value, d for a tensor.
            args = [next(scalars) if how == "c" else next(operands) for how in node.cconv()]
            with self._world.running():
                return [node.pyobj().__self__.repeated(*args)]
        if kind in _SIZES:
            return [_SIZES[kind](*given)]
        if given and isinstance(given[0], _NUMBERS):
            if kind in _SAME:
                return [given[0]]
            name = kind.partition("::")[2].strip("_")
            if name in ARITHMETIC and all(one is None or isinstance(one, _NUMBERS) for one in given):
                return [_computed(name, given)]
        return self._run_operator(_operator(node), given)

    def _run_operator(self, operator: Any, given: list[Any]) -> list[Any]:
        arguments = operator._schema.arguments
        args = [one for one, argument in zip(given, arguments, strict=True) if not argument.kwarg_only]
        kwargs = {a.name: one for one, a in zip(given, arguments, strict=True) if a.kwarg_only}

        def run() -> Any:
            own = [one.detach() if isinstance(one, torch.Tensor) else one for one in args] if _marks(operator) else args
            with self._world.running():
                shape = result_shape(operator, args)
                return operator(*own, **kwargs) if shape is None else args[0].new_empty(shape)

        results = self._world.shared.results(operator, args, kwargs, run)
        if any(isinstance(one, _NUMBERS) for one in results):  # torch.ops makes Python numbers of symbols
            raise _UnknownError
        return results

    def _anything(self, value: Any) -> object:
        """A fake tensor with all dimensions dynamic, for the result of an operator that cannot be run again."""
        try:
            least = BY_DATA if value.node().kind() in _BY_DATA else MADE_UP
            return self._fake(value, None, least + value.unique())
        except Exception as error:
            return _UnknownError(str(error))

    def _with_other_sizes(self, node: Any, unknown: Any) -> object:
        """The same with the sizes of the operand, where a slice or a pad by an unknown number changes others."""
        given = list(node.inputs())
        x = self._known.get(given[0].unique()) if given else None
        if not isinstance(x, torch.Tensor) or not isinstance(unknown, torch.Tensor) or x.dim() != unknown.dim():
            return unknown
        changed = set(range(x.dim()))
        if node.kind() == "aten::slice":
            axis = self._known.get(given[1].unique())
            changed = {axis % x.dim()} if isinstance(axis, int) else changed
        elif node.kind() == "aten::pad":  # two numbers for each axis, the last first
            changed = set(range(x.dim() - len(list(given[1].node().inputs())) // 2, x.dim()))
        with self._world.running():
            return x.new_empty([unknown.shape[n] if n in changed else size for n, size in enumerate(x.shape)])

    def _fake(self, value: Any, axes: frozenset[int] | None, number: int) -> torch.Tensor:
        sizes, dtype = value.type().sizes(), value.type().dtype()
        if sizes is None or dtype is None:
            raise _UnknownError
        if axes == frozenset():  # a parameter: one fake tensor for all of its shape
            key = (tuple(sizes), dtype)
            if key not in self._static:
                self._static[key] = self._world.fake(torch.empty(sizes, dtype=dtype), axes, number)
            return self._static[key]
        return self._world.fake(torch.empty(sizes, dtype=dtype), axes, number)


def _computed(name: str, given: list[object]) -> Any:
    """Arithmetic on numbers. The third operand of add and sub is a factor."""
    if len(given) == 3 and name in ("add", "sub", "radd", "rsub") and given[2] == 1:
        given = given[:2]
    return ARITHMETIC[name](*given)


def _marks(operator: Any) -> bool:
    """Whether an operator changes its arguments, so that it must be given aliases of tensors that other calls share.

    It may change their shape (`unsqueeze_`), or torch remembers a size that depends on data on them (`nonzero`).
    """
    return bool(operator._schema.is_mutable) or sized_by_data(operator)


def _operator(node: Any) -> Any:
    name = str(node.schema()).partition("(")[0]
    if not name.startswith("aten::"):
        raise _UnknownError(name)
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _holds_tensors(value: Any) -> bool:
    kind = value.type()
    return bool((kind.getElementType() if kind.kind() == "ListType" else kind).kind() == "TensorType")


def _may_choose(node: Any) -> bool:
    """Whether an operator's result may have sizes that data decides; of others than torch's nothing is known."""
    kind = node.kind()
    if kind == "aten::index":
        places = (one.type() for one in list(node.inputs())[1].node().inputs())
        return any(one.kind() == "TensorType" and one.scalarType() not in ("Long", "Int") for one in places)
    return kind not in _HANDS_ON and (kind in _CHOOSES or sized_by_data(_operator(node)))
