"""Makes fake tensors whose dynamic dimensions are symbols, under trace, with private torch APIs.

`FakeTensorMode.from_tensor` and `StatelessSymbolicContext` are what torch.export makes its inputs with. Which
dimensions are dynamic is read off the arguments of the TorchScript exporter's own frame, since nothing public tells
them to the code that is traced. If these move, sizes are unknown under the trace exporter: each counts as dynamic, and
what `branches=True` needs to know of them is refused. `FakeTensorMode.cache_enabled` only saves time.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Iterator
from typing import Any

import torch

from onnxpatch.undone import undone


class FakeWorld:
    """A FakeTensorMode with symbolic sizes of its own."""

    @functools.cached_property
    def mode(self) -> Any:
        """The FakeTensorMode itself."""
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        # torch's own cache of results compares sizes at length. `FakeResults` knows equal calls before they are made.
        mode.cache_enabled = False
        return mode

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside the block, operators run on fake tensors. What they ask of sizes is answered as in the example, and
        fixes none: a table of 16 rows added at 16 tokens does not make 16 of every number of tokens."""
        log = logging.getLogger("torch._subclasses.fake_tensor")
        before = log.disabled
        with self.mode, self.mode.shape_env.suppress_guards(), undone(lambda: setattr(log, "disabled", before)):
            log.disabled = (
                True  # it shows an operator that cannot run so with its whole stack, and whoever asked goes on
            )
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
        with _oblivious():
            # torch tells symbols apart by their source, so that each input needs a name of its own.
            return self.mode.from_tensor(
                tensor.detach(), source=ConstantSource(f"in{number}"), symbolic_context=context
            )


def _oblivious() -> contextlib.AbstractContextManager[Any]:
    """Sizes of 0 and 1 are like any other. Before torch 2.7, which has no such option, they are taken apart."""
    from torch.fx.experimental import _config

    if not hasattr(_config, "backed_size_oblivious"):
        return contextlib.nullcontext()
    oblivious: contextlib.AbstractContextManager[Any] = _config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]
    return oblivious


def traced_dynamic_axes() -> dict[int, frozenset[int]] | None:
    """The dynamic dimensions of the graph's inputs, by their place, of the torch.onnx.export(dynamo=False) that runs.

    An input that is not in the answer has none. None where the dimensions are not known.
    """
    frame = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals
        if frame.f_code.co_name == "_export" and {"dynamic_axes", "input_names", "output_names"} <= found.keys():
            return _axes(found["dynamic_axes"] or {}, found["input_names"] or (), found["output_names"] or ())
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _axes(axes: Any, inputs: Any, outputs: Any) -> dict[int, frozenset[int]] | None:
    if set(axes) - set(inputs) - set(outputs):  # an input by the name that the graph will give it
        return None
    return {place: frozenset(axes[name]) for place, name in enumerate(inputs) if name in axes}
