"""What a patched model needs while torch.jit.trace runs it, and its weights on the way into the file.

- A model may catch an error of torch and go on, as in eager (`function_modes.py`).
- The tracer's warnings name the line of the model, not a line of onnxpatch that called torch for it.
- Patches can ask which sizes are the same for all inputs (`traced_sizes.py`).
- What torch.compile made runs as it was written, which torch refuses here. It does so inside of a symbolic trace of
  torch.fx (`torch.fx._symbolic_trace._is_fx_tracing_flag`; in torch 2.15 each thread has a flag of its own, which
  `_is_fx_tracing_context` sets), if `torch._dynamo.config.error_on_nested_fx_trace` is off. If these move, a model that
  calls such a function is refused under trace, as torch refuses it.
- `torch.onnx.export(dynamo=False)` copies all weights into a protobuf message, that into a string, the string into
  Python bytes, and parses these: three times the weights on top of the model's own. Large ones are left out by
  `torch._C._jit_pass_onnx_deduplicate_initializers`, the last step before the message is made. What it returns is
  written as initializers; what is missing there becomes an input. If it moves, the file is made as torch makes it.
- A model may compile a function while it is traced, as `torch.jit.script_if_tracing` does. The compiler reads what
  names refer to, and must find what the user wrote: `torch.jit._script._script_impl` is replaced in this thread. If it
  moves, functions that call `int` are refused there.
- Compiled code (torch.jit.script) asks `not n` of numbers and `~x` of whole ones, which the exporter takes of truth
  values alone. No patch acts there: the operators themselves get another translation, as users register one.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.jit import TracerWarning  # type: ignore[attr-defined]

from onnxpatch._torch.function_modes import trace_error_recovery
from onnxpatch._torch.one_export import Replaced
from onnxpatch._torch.traced_sizes import sizes_are_known, static_sizes_known
from onnxpatch.messages.user_code import asking_frame, package_of
from onnxpatch.process import filtered, undone, warned

_BOOL = 9  # as ONNX numbers it


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """For the time that torch.jit.trace runs a model inside the block. Inside another one it does nothing."""
    if sizes_are_known():  # each of these modes costs every torch call
        yield
        return
    # Last in the list: what the user asked for, to be silent say, comes before it. Without it, Python shows a text once
    # for a line, and all come from one line of onnxpatch.
    with (
        filtered("always", TracerWarning, last=True),
        warned(_at_the_models_line),
        run_as_written(),
        trace_error_recovery(),
        static_sizes_known(),
    ):
        yield


def compiled_within(
    as_written: Callable[[], contextlib.AbstractContextManager[None]],
) -> contextlib.AbstractContextManager[None]:
    """A context in which torch.jit.script compiles, in this thread, within another one: one that replaces no name."""
    return _COMPILED.held(as_written)


def _compiling(original: Callable[..., Any]) -> Callable[..., Any]:
    def compiled(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for as_written in _COMPILED.here()[-1:]:
                stack.enter_context(as_written())
                kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1  # this function's own
            return original(*args, **kwargs)

    return compiled


_COMPILED = Replaced("torch.jit._script._script_impl", _compiling)


def _at_the_models_line(show: Callable[..., None]) -> Callable[..., None]:
    shown = set()

    def show_once(message: object, category: type[Warning], filename: str, lineno: int, *rest: object) -> None:
        if issubclass(category, TracerWarning):
            frame = asking_frame(sys._getframe(1))
            if frame is None or package_of(frame) == "torch":  # torch's own checks of shapes: it is silent about them
                return
            filename, lineno = frame.f_code.co_filename, frame.f_lineno
            if (known := (str(message), filename, lineno)) in shown:
                return
            shown.add(known)
        show(message, category, filename, lineno, *rest)

    return show_once


@contextlib.contextmanager
def run_as_written() -> Iterator[None]:
    """A context in which a call of a compiled function runs the original one, its patches included."""
    config: Any = getattr(sys.modules.get("torch._dynamo"), "config", None)
    # Before torch._dynamo is imported, which takes two seconds, nothing can have been compiled.
    if not hasattr(config, "error_on_nested_fx_trace"):
        yield
        return
    fx: Any = sys.modules["torch.fx._symbolic_trace"]
    of_this_thread = getattr(fx, "_is_fx_tracing_context", None)
    with config.patch(error_on_nested_fx_trace=False), of_this_thread(True) if of_this_thread else _FLAG.held():
        yield


# Before torch 2.15, one for all threads.
_FLAG = Replaced("torch.fx._symbolic_trace._is_fx_tracing_flag", lambda before: True)


def _not(graph: Any, number: Any) -> Any:
    return graph.op("Not", graph.op("Cast", number, to_i=_BOOL))


def _invert(graph: Any, number: Any) -> Any:
    if "Bool" in str(number.type()):
        return graph.op("Not", number)
    if graph.opset >= 18:
        return graph.op("BitwiseNot", number)
    return graph.op("Sub", graph.op("Constant", value_t=torch.tensor(-1)), number)  # of int64


@contextlib.contextmanager
def numbers_negated() -> Iterator[None]:
    """A context in which `not n` of a number and `~x` of whole ones, in compiled code, have an ONNX form."""
    forms = {"aten::__not_": _not, "aten::bitwise_not": _invert}

    def put_back() -> None:
        for name in forms:
            torch.onnx.unregister_custom_op_symbolic(name, 9)  # type: ignore[attr-defined]  # documented

    with undone(put_back):
        for name, form in forms.items():
            torch.onnx.register_custom_op_symbolic(name, form, 9)  # type: ignore[attr-defined]  # documented
        yield


class _Asked(NamedTuple):
    """What a thread asked for, and what was left out for it."""

    least: float
    smallest: int
    found: dict[str, torch.Tensor]


@contextlib.contextmanager
def weights_left_out(least: float, smallest: int) -> Iterator[dict[str, torch.Tensor]]:
    """A context in which the TorchScript exporter, called in this thread, leaves large weights out of its file.

    Gives them by name, each an input of the graph now: those of more than `smallest` bytes, where they have `least`
    bytes together.
    """
    found = dict[str, torch.Tensor]()
    with _DIVIDED.held(_Asked(least, smallest, found)):
        yield found


def _dividing(original: Callable[..., dict[str, torch.Tensor]]) -> Callable[..., dict[str, torch.Tensor]]:
    def divided(graph: object, weights: dict[str, torch.Tensor], *rest: object) -> dict[str, torch.Tensor]:
        kept = original(graph, weights, *rest)
        for asked in _DIVIDED.here()[-1:]:
            large = {name: one for name, one in kept.items() if _can_be_written(one) and one.nbytes > asked.smallest}
            if sum(one.nbytes for one in large.values()) >= asked.least:
                asked.found.update(large)
            kept = {name: one for name, one in kept.items() if name not in asked.found}
        return kept

    return divided


_DIVIDED = Replaced("torch._C._jit_pass_onnx_deduplicate_initializers", _dividing)


def _can_be_written(tensor: torch.Tensor) -> bool:
    """Whether its bytes are what an ONNX file has."""
    return tensor.layout == torch.strided and not tensor.is_quantized
