"""Private torch APIs around the ONNX exporters: what every export would do again is done once in a process.

- `torch.onnx._internal.exporter._registration.ONNXRegistry.from_torchlib`: replaced in this thread by a copy of the
  table that was built last, since an export adds translations of its own. Building it reads the source of some 500
  functions, half a second. It is built again where an operator of torch or a translation has been registered since:
  `torch._C._dispatch_get_all_op_names`,
  `torch.onnx._internal.exporter._torchlib._torchlib_registry.get_torchlib_ops` and onnxscript's `default_registry`. If
  one of these moves, every export builds a table.
- `torch.onnx._internal.exporter._capture_strategies`: the first half of an export, torch.export as the exporter calls
  it. If they move, exports are not split in two. Up to torch 2.7 the last of them is torch.jit.trace, which ends the
  process where the model catches an error of torch: it is left out. If they move, it is not. Their lines of progress
  hold `repr(model)`, which the user may have written and which may raise: none are written.
- `ShapeEnv._log_guard`: called when torch.export assumes a condition on a size. Its frame has the Python line, which an
  ExportedProgram does not keep. If it moves, no lines are known.
- `torch.autograd.grad_mode.inference_mode.__enter__`: a tensor made in inference mode is refused by the grad mode of
  torch.export behind it, so that it is entered as `no_grad`. If it moves, such models are refused.
- `torch.compiler._is_exporting_flag`: where it is set, a scripted module calls the function that it was made from, and
  hands itself over twice (2.13). It is off for such a call, whose operators are recorded then. If it moves, models with
  scripted parts are refused.
- onnxscript's `SimplePatternMatcher._match_constant`: its rewriter takes 1e-8 for 0 and 1.00001 for 1, and leaves out
  `x + 1e-8`, the model's or one in torch's own functions. Inside of an export these match exactly. If it moves, they do
  not.
- `ShapeEnv.var_to_sources`: the input size that a symbol stands for, before there is an ExportedProgram. If it moves,
  the conditions of an export that failed are not evaluated at other sizes.
"""

from __future__ import annotations

import contextlib
import copy
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from onnxpatch._torch.one_export import Replaced
from onnxpatch.process import undone

_EXPORTER = "torch.onnx._internal.exporter"
# By opset: what was registered then, and the table. One object, so that no thread sees half of it.
_tables: dict[int, tuple[object, Any]] = {}


def dynamo_capture(
    model: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    dynamic_shapes: object,
    once: bool = False,
) -> Any:
    """The first half of a dynamo export: its ExportedProgram. None if torch has moved the API.

    The exporter calls torch.export in several ways. once: only the first. Raises the first one's error.
    """
    try:
        from torch.onnx._internal.exporter._capture_strategies import CAPTURE_STRATEGIES
    except ImportError:
        return None
    results = []
    for strategy in _not_tracing(CAPTURE_STRATEGIES)[: 1 if once else None]:
        # A strategy gives a result with its error in it; it does not raise.
        results.append(strategy(verbose=False)(model, args, kwargs, dynamic_shapes))
        if results[-1].exported_program is not None:
            return results[-1].exported_program
    raise results[0].exception or RuntimeError("torch.export gave no program")


def _not_tracing(strategies: tuple[Any, ...]) -> tuple[Any, ...]:
    """All but the one that calls torch.jit.trace, without their lines of progress."""
    silent = dict.fromkeys(("_enter", "_success", "_failure"), lambda self, model, error=None: None)
    return tuple(type(one.__name__, (one,), silent) for one in strategies if not one.__name__.startswith("Jit"))


without_tracing = Replaced(f"{_EXPORTER}._capture_strategies.CAPTURE_STRATEGIES", _not_tracing).held
"""A context in which a dynamo export that torch.export refuses does not go on to torch.jit.trace."""


def _exactly(original: Callable[..., bool]) -> Callable[..., bool]:
    def match(self: Any, pattern: Any, value: Any) -> bool:
        matches = original(self, pattern, value)
        if not matches or not _EXACT.here() or pattern.value not in (0, 1):
            return matches
        found = value.const_value.numpy().item()
        return bool(found == pattern.value or self.fail(f"{found} is not {pattern.value}"))

    return match


_EXACT = Replaced("onnxscript.rewriter.pattern.SimplePatternMatcher._match_constant", _exactly)
exact_constants = _EXACT.held
"""A context in which onnxscript's rewriter takes no number near 0 for 0, and none near 1 for 1."""


def _entering(original: Callable[..., Any]) -> Callable[..., Any]:
    def enter(self: Any) -> None:
        if not _INFERENCE.here():
            return original(self)
        self._inference_mode_context = torch.no_grad() if self.mode else torch.enable_grad()
        self._inference_mode_context.__enter__()
        return None

    return enter


def _interpreted(method: Any) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        flag = getattr(torch.compiler, "_is_exporting_flag", False)
        with undone(lambda: setattr(torch.compiler, "_is_exporting_flag", flag)):
            torch.compiler._is_exporting_flag = False
            return method(*args, **kwargs)

    return forward


_INFERENCE = Replaced("torch.autograd.grad_mode.inference_mode.__enter__", _entering)


def scripted_parts(model: Any) -> list[torch.jit.ScriptModule]:
    """The scripted modules inside a model of Python; none of one that is scripted as a whole."""
    whole = isinstance(model, torch.jit.ScriptModule) or not isinstance(model, torch.nn.Module)
    return [] if whole else [part for part in model.modules() if isinstance(part, torch.jit.ScriptModule)]


@contextlib.contextmanager
def parts_in_modes(model: Any) -> Iterator[None]:
    """A context in which torch.export takes parts of a model that are behind `inference_mode`, or scripted."""
    scripted = scripted_parts(model)
    parts = [vars(part) for part in scripted]
    before = [part.get("forward") for part in parts]

    def put_back() -> None:
        for part, own in zip(parts, before, strict=True):
            part.pop("forward", None)
            part.update({} if own is None else {"forward": own})

    with _INFERENCE.held(), undone(put_back):
        for module in scripted:
            vars(module)["forward"] = _interpreted(module.forward)
        yield


def watched_sizes(seen: Callable[[Any, FrameType | None, Any], None]) -> contextlib.AbstractContextManager[None]:
    """A context in which `seen(condition, frame, env)` is called for every sympy condition that torch.export assumes.

    For this thread only. frame: torch's own, inside the call by the user's line. env: for `input_symbols`.
    """
    return _WATCHED.held(seen)


def _watching(original: Callable[..., Any]) -> Callable[..., Any]:
    def watching(self: Any, prefix: str, g: object, *rest: Any, **named: Any) -> Any:
        for seen in _WATCHED.here():
            seen(g, sys._getframe(1), self)
        return original(self, prefix, g, *rest, **named)

    return watching


_WATCHED = Replaced("torch.fx.experimental.symbolic_shapes.ShapeEnv._log_guard", _watching)


def input_symbols(env: object) -> list[str]:
    """The symbols of the inputs' dynamic sizes, in the order of the inputs and of their axes."""
    found = []
    for symbol, sources in getattr(env, "var_to_sources", {}).items():
        name = getattr(sources[0], "name", "") if sources else ""
        # `Source.name` is a method in some versions of torch and a property in others.
        name = name() if callable(name) else name
        if re.search(r"\.size\(\)\[\d+\]$", name):
            found.append(str(symbol))
    return found


def _keeping(original: Any) -> Any:
    def kept(cls: Any, *args: Any, **kwargs: Any) -> Any:
        build, opset = original.__get__(None, cls), kwargs.get("opset_version")
        if not _KEPT.here() or "from_torchlib" not in vars(cls) or args or len(kwargs) != 1:
            return build(*args, **kwargs)
        return _copied(opset, lambda: build(opset_version=opset))

    return classmethod(kept)


_KEPT = Replaced(f"{_EXPORTER}._registration.ONNXRegistry.from_torchlib", _keeping)
kept_translations = _KEPT.held
"""A context in which a dynamo export in this thread takes the table of an earlier one."""


def _copied(opset: Any, build: Callable[[], Any]) -> Any:
    """A copy of the table for an opset, which the caller may change."""
    try:
        registered = _registered()
    except (ImportError, AttributeError):
        return build()
    known, table = _tables.get(opset, (None, None))
    if known != registered:
        table = build()
        _tables[opset] = registered, table
    made = copy.copy(table)
    made.functions = {target: list(written) for target, written in table.functions.items()}
    return made


def _registered() -> object:
    """Changes with every operator of torch, and every translation, that is registered."""
    from onnxscript.function_libs.torch_lib import ops, registration
    from torch.onnx._internal.exporter._torchlib import _torchlib_registry

    del ops  # imported for what it registers
    scripts = [one for function in registration.default_registry.values() for one in function.overloads]
    written = [*scripts, *_torchlib_registry.get_torchlib_ops()]
    return len(torch._C._dispatch_get_all_op_names()), tuple(id(one) for one in written)
