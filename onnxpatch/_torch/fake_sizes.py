"""Makes fake tensors whose dynamic dimensions are symbols, under trace, with private torch APIs.

`FakeTensorMode.from_tensor` and `StatelessSymbolicContext` are what torch.export makes its inputs with;
`FakeTensorMode.__torch_dispatch__` sees every operator. Which dimensions are dynamic is read off the arguments of the
TorchScript exporter's own frame, since nothing public tells them to the code that is traced. If these move, sizes are
unknown under the trace exporter: each counts as dynamic, and what `branches=True` needs to know of them is refused.
`FakeTensorMode.cache_enabled` and `ShapeEnv._get_user_frame` only save time. `ShapeEnv.evaluate_expr` is asked whether
a size is 1: if it moves, the example answers.

A model of sixty equal layers has sixty times the same operators. What a world shares runs each once for all arguments
of the same shape: fake tensors of one shape, stride and dtype are one object in it. Shapes are compared by
`SymInt.node.expr`, the sympy expression of a size. If that moves, nothing is shared, and every call runs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch

from onnxpatch._torch.cond import assume, free_symbols
from onnxpatch.process import Shared, undone


class _UnsharedError(Exception):
    """A value that must not be taken for another one."""


class _FakeResults:
    """The fake tensors of one trace, by shape, and the results of its operators, by arguments."""

    def __init__(self) -> None:
        self._tensors: dict[Hashable, torch.Tensor] = {}
        self._results: dict[Hashable, list[Any]] = {}

    def results(
        self, operator: object, args: list[object], kwargs: dict[str, object], run: Callable[[], object]
    ) -> list[Any]:
        """The results of an operator: those of an equal call, or else those of `run()`."""
        try:
            key = (operator, tuple(map(self._key, args)), tuple((name, self._key(one)) for name, one in kwargs.items()))
        except _UnsharedError:
            return _listed(run())
        if key not in self._results:
            results = [self.tensor(one) for one in _listed(run())]
            # A size that the data decide (of `nonzero`) is another one at every call, however equal the arguments.
            try:
                if not _symbols(results) <= _symbols([*args, *kwargs.values()]):
                    return results
            except AttributeError:  # sizes that cannot be compared
                return results
            self._results[key] = results
        return self._results[key]

    def tensor(self, value: Any) -> Any:
        """The first fake tensor of this shape, stride and dtype; what is no tensor, or has a known content, itself."""
        try:
            return self._tensors.setdefault(_shape_key(value), value)
        except _UnsharedError:
            return value

    def _key(self, value: object) -> Hashable:
        if isinstance(value, torch.Tensor):
            if self.tensor(value) is not value:
                raise _UnsharedError
            return id(value)  # both tables keep it alive
        if isinstance(value, _PLAIN):
            return (type(value), value)
        if isinstance(value, list | tuple):
            return tuple(map(self._key, value))
        return _expression(value)


def _shape_key(value: object) -> Hashable:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise _UnsharedError
    if getattr(value, "constant", None) is not None:  # a FakeTensor's, whose content is known
        raise _UnsharedError
    sizes = (*map(_expression, value.shape), *map(_expression, value.stride()))
    return (value.dtype, value.device, value.dim(), sizes)


def _expression(size: Any) -> Hashable:
    if isinstance(size, int):
        return size
    try:
        expression: Hashable = size.node.expr
    except AttributeError:
        raise _UnsharedError from None
    return expression


def _symbols(values: list[object]) -> set[Any]:
    """The symbols in sizes and in shapes."""
    found: set[Any] = set()
    for value in values:
        inner = value.shape if isinstance(value, torch.Tensor) else value
        for one in inner if isinstance(inner, list | tuple) else (inner,):
            if isinstance(one, torch.Tensor | list | tuple):
                found |= _symbols([one])
            else:
                found |= free_symbols(one)
    return found


def _listed(made: object) -> list[object]:
    return list(made) if isinstance(made, tuple) else [made]


_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout)


class FakeWorld:
    """A FakeTensorMode with symbolic sizes of its own. shared: its tensors by shape, results by arguments."""

    def __init__(self) -> None:
        self.shared = _FakeResults()

    @functools.cached_property
    def mode(self) -> Any:
        """The FakeTensorMode itself."""
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

        class WithoutPlaces(ShapeEnv):
            """torch looks up the line that asked for each size, and loads torch.export to leave out its own files.
            Kernels ask whether a batch of unknown size is empty: it is not."""

            def _get_user_frame(self) -> None:
                return None

            def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
                # Whether a size that may be anything is 1 is left open where torch's own code can do without an answer:
                # what is broadcast with a size of 1 would be 1 always where the example has 1.
                if (left_open := kwargs.get("fallback_value")) is not None and _compares_with_1(orig_expr):
                    return left_open
                return super().evaluate_expr(orig_expr, *args, **kwargs)

            def evaluate_sym_node(self, sym_node: Any, *args: Any, **kwargs: Any) -> Any:
                try:
                    return super().evaluate_sym_node(sym_node, *args, **kwargs)
                except GuardOnDataDependentSymNode:
                    answer = assume(torch.SymBool(sym_node)) if sym_node.pytype is bool else None
                    if answer is None:
                        raise
                    return answer

        class WithSymbolicPadding(FakeTensorMode):
            """torch's own kernel for padded fake tensors makes numbers of their symbols."""

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if func is not torch.ops.aten.constant_pad_nd.default:
                    return super().__torch_dispatch__(func, types, args, kwargs)
                with self:
                    return _padded(*args[:2])

        mode = WithSymbolicPadding(shape_env=WithoutPlaces(), allow_non_fake_inputs=True)
        # torch's own cache of results compares sizes at length. `shared` knows equal calls before they are made.
        mode.cache_enabled = False
        return mode

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside the block, operators run on fake tensors. What they ask of sizes is answered as in the example, and
        fixes none: a table of 16 rows added at 16 tokens does not make 16 of every number of tokens."""
        from torch._dispatch.python import enable_python_dispatcher

        # Without the dispatcher, addcmul, addcdiv, lerp and addbmm that broadcast refuse symbolic sizes. An interrupt
        # at the end of a `with enable_python_dispatcher():` would leave it in force for good.
        dispatcher = enable_python_dispatcher()
        with undone(lambda: dispatcher.__exit__(None, None, None)), self.mode, self.mode.shape_env.suppress_guards():
            dispatcher.__enter__()
            with _QUIET.held():
                yield

    def fake(self, tensor: torch.Tensor, dynamic: frozenset[int] | None, number: int | None) -> torch.Tensor:
        """A fake tensor of the same shape; `dynamic`: which dimensions are symbols (None: all)."""
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

        if number is None:
            # Not an input, but a parameter or constant: its sizes are the same in every call.
            return self.mode.from_tensor(tensor.detach(), static_shapes=True)
        symbolic = [dynamic is None or dim in dynamic for dim in range(tensor.dim())]
        context: Any = StatelessSymbolicContext(
            dynamic_sizes=[DimDynamic.DYNAMIC if dim else DimDynamic.STATIC for dim in symbolic]
        )
        with _OBLIVIOUS.held():
            # torch tells symbols apart by their source, so that each input needs a name of its own.
            return self.mode.from_tensor(
                tensor.detach(), source=ConstantSource(f"in{number}"), symbolic_context=context
            )


def _compares_with_1(condition: Any) -> bool:
    return type(condition).__name__ in ("Equality", "Unequality") and 1 in condition.args


def _padded(x: torch.Tensor, pads: list[int]) -> torch.Tensor:
    sizes = list(x.shape)
    for place in range(len(pads) // 2):  # pairs of before and after, the last dimension first
        sizes[-1 - place] += pads[2 * place] + pads[2 * place + 1]
    return x.new_empty(sizes)


def _oblivious() -> contextlib.AbstractContextManager[Any]:
    """Sizes of 0 and 1 are like any other. Before torch 2.7, which has no such option, they are taken apart."""
    from torch.fx.experimental import _config

    if not hasattr(_config, "backed_size_oblivious"):
        return contextlib.nullcontext()
    oblivious: contextlib.AbstractContextManager[Any] = _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
    return oblivious


_OBLIVIOUS = Shared(_oblivious)  # torch's options belong to the process


def traced_dynamic_axes() -> dict[int, frozenset[int]] | None:
    """The dynamic dimensions of the graph's inputs, by their place, of the torch.onnx.export(dynamo=False) that runs.

    An input that is not in the answer has none. None where the dimensions are not known.
    """
    frame = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals
        if frame.f_code.co_name == "_export" and {"dynamic_axes", "input_names", "output_names"} <= set(found):
            return _axes(found["dynamic_axes"] or {}, found["input_names"] or (), found["output_names"] or ())
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _axes(axes: Any, inputs: Any, outputs: Any) -> dict[int, frozenset[int]] | None:
    if set(axes) - set(inputs) - set(outputs):  # an input by the name that the graph will give it
        return None
    return {place: frozenset(axes[name]) for place, name in enumerate(inputs) if name in axes}


@contextlib.contextmanager
def _no_log() -> Iterator[None]:
    """torch shows an operator that cannot run on fake tensors with its whole stack; whoever asked goes on without."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    with undone(lambda: setattr(log, "disabled", before)):
        log.disabled = True
        yield


_QUIET = Shared(_no_log)
