"""Private and version-dependent torch APIs: which, why, and what happens when they move.

- `torch.compiler.is_exporting` (public since 2.7) tells torch.export from torch.compile; 2.6 falls back to
  `is_compiling`. Both are flags of the process. `torch._guards.TracingContext` belongs to a thread, and torch.export
  keeps one while it runs a model. So does the stack of dispatch modes, with torch.export's mode for fake tensors
  (`torch._C._get_dispatch_mode`), which is asked where a version keeps no context.
- `torch.utils._pytree`: flattening arguments and outputs exactly as both exporters do; it is what `torch.export`
  documents for custom containers. It moves with torch.export; no fallback.
- `ShapeEnv.deferred_runtime_asserts`: conditions on sizes that an export relied on; without it none are known.
- `torch.onnx._internal.exporter` (its registry and decompositions), `torch.onnx._internal.torchscript_exporter` (its
  symbolics), `torch._C._dispatch_get_all_op_names`: which operators have an ONNX form. Where they have moved, the
  table of operators is empty and says so; nothing else uses them.
- `torch.overrides.get_overridable_functions` (public) says which functions a TorchFunctionMode sees.
- `torch._C.DisableTorchFunction` runs a block past every mode (as `torch.overrides` itself does); were it gone, a
  stand-in that must look at a tensor unseen would fail at import of this file, and the tests with it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import types
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

__all__ = [
    "aten_operators",
    "exporting",
    "function_name",
    "is_composite",
    "onnx_decompositions",
    "onnx_translations",
    "pytree",
    "size_conditions",
    "torch_function_key",
    "torchscript_symbolics",
]


def exporting() -> Literal["dynamo", "trace"] | None:
    """Which exporter is running the calling code in this thread now, or None in plain eager.

    Scripted code is compiled, not run: there, ask `torch.jit.is_scripting()`. Code that dynamo compiles (bodies of
    torch.cond and the like, torch.compile, strict torch.export) is left as it is: there the answer is None.
    """
    if torch.compiler.is_dynamo_compiling():
        return None
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return "trace"
    is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
    return "dynamo" if is_exporting() and _tracing_here() else None


def _tracing_here() -> bool:
    """Whether it is this thread that torch.export runs a model in: another may run the same model in eager."""
    context = getattr(torch._guards, "TracingContext", None)
    if context is not None and context.try_get() is not None:
        return True
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


unseen = torch._C.DisableTorchFunction
"""Context manager: torch calls inside are seen by no TorchFunctionMode."""


_BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


@functools.cache
def _overridable() -> frozenset[Any]:
    functions = torch.overrides.get_overridable_functions()
    return frozenset(function for group in functions.values() for function in group)


def torch_function_key(function: Any) -> Any | None:
    """What a TorchFunctionMode is handed when `function` is called, or None if such a mode never sees it."""
    if isinstance(function, types.GetSetDescriptorType | property):
        return function.__get__
    if isinstance(function, _BUILTINS):
        owner = function if getattr(function, "__module__", None) else getattr(function, "__objclass__", None)
        return function if str(getattr(owner, "__module__", "")).split(".")[0] == "torch" else None
    return function if function in _overridable() else None


def function_name(function: Any) -> str:
    """The name that a torch function has in torch; of a property (Tensor.mT) that of the property."""
    name = getattr(function, "__name__", "")
    # A property comes to a TorchFunctionMode as the bound __get__ of its descriptor.
    return getattr(getattr(function, "__self__", None), "__name__", name) if name == "__get__" else name


def size_conditions(exported: Any) -> tuple[dict[tuple[int, int], Any], list[tuple[Any, str]]]:
    """What an ExportedProgram assumes of its sizes: ({(user input, axis): symbol}, [(sympy condition, source line)]).

    Private: `ShapeEnv.deferred_runtime_asserts` and `range_constraints` by way of the inputs' fake tensors; the ONNX
    exporter drops the assert nodes themselves. Where they have moved, nothing is known: ({}, []).
    """
    places: dict[tuple[int, int], Any] = {}
    env = None
    for index, fake in enumerate(_user_inputs(exported)):
        for axis, size in enumerate(getattr(fake, "shape", ())):
            node = getattr(size, "node", None)
            if isinstance(size, torch.SymInt) and node is not None:
                env = env or getattr(node, "shape_env", None)
                if getattr(node.expr, "is_Symbol", False):
                    places[index, axis] = node.expr
    asserts = getattr(env, "deferred_runtime_asserts", {}) or {}
    conditions = [(one.expr, _assert_source(one)) for group in asserts.values() for one in group]
    return places, conditions + _range_conditions(exported)


def _user_inputs(exported: Any) -> list[Any]:
    wanted = set(exported.graph_signature.user_inputs)
    nodes = [node for node in exported.graph.nodes if node.op == "placeholder" and node.name in wanted]
    values = [node.meta.get("val") for node in nodes]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _range_conditions(exported: Any) -> list[tuple[Any, str]]:
    import sympy

    found: list[tuple[Any, str]] = []
    for symbol, bounds in getattr(exported, "range_constraints", {}).items():
        low, high = (b if getattr(b, "is_Integer", False) and b < 2**31 else None for b in (bounds.lower, bounds.upper))
        if low is not None and low > 1:
            found.append((sympy.Ge(symbol, low), ""))
        if high is not None:
            found.append((sympy.Le(symbol, high), ""))
    return found


def _assert_source(one: Any) -> str:
    """The innermost Python line outside torch where the condition arose; '' where torch did not keep it."""
    stack: Any = getattr(one, "stack", None)
    try:
        frames = stack.summary() if hasattr(stack, "summary") else ()
    except Exception:  # a captured traceback may be gone; the condition itself still counts
        return ""
    outside = [f for f in frames if "/torch/" not in f.filename and "onnxpatch" not in f.filename]
    return f"{outside[-1].filename}:{outside[-1].lineno} {outside[-1].line or ''}".strip() if outside else ""


def onnx_translations() -> dict[str, list[Callable[..., Any]]]:
    """{"aten::add.Tensor": [the functions that write it in ONNX]} of the dynamo exporter; {} where torch moved them."""
    try:
        from torch.onnx._internal.exporter import _registration

        registered = _registration.ONNXRegistry.from_torchlib().functions
    except (ImportError, AttributeError):
        return {}
    found: dict[str, list[Callable[..., Any]]] = {}
    for metas in registered.values():
        for meta in metas:
            name = _qualified(meta.fx_target)
            written = meta.onnx_function
            found.setdefault(name, []).append(getattr(written, "func", getattr(written, "function", written)))
    return found


def onnx_decompositions() -> set[str]:
    """Overloads that the dynamo exporter breaks up into others before translation; empty where torch moved them."""
    try:
        from torch.onnx._internal.exporter import _decomp, _registration

        registry = _registration.ONNXRegistry.from_torchlib()
        written = set(_decomp.get_onnx_implemented_overloads(registry))
        table = _decomp.create_onnx_friendly_decomposition_table(written)
    except (ImportError, AttributeError, TypeError):
        return set()
    return {_qualified(overload) for overload in table}


def _qualified(target: Any) -> str:
    """`aten::add.Tensor`, `aten::gelu`; a Python function by its own name."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return str(getattr(target, "__name__", target))
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def torchscript_symbolics() -> dict[str, int]:
    """{"aten::gelu": lowest opset of its symbolic} of the TorchScript exporter; {} where torch moved them."""
    for home, written in (("torch.onnx._internal.torchscript_exporter",) * 2, ("torch.onnx._internal", "torch.onnx")):
        try:
            registry = importlib.import_module(f"{home}.registration").registry
            package = importlib.import_module(written)
        except (ImportError, AttributeError):
            continue
        for module in pkgutil.iter_modules(package.__path__):  # each fills the registry when it is imported
            if module.name.startswith("symbolic_opset"):
                importlib.import_module(f"{written}.{module.name}")
        groups = {name: registry.get_function_group(name) for name in registry.all_functions()}
        return {name: group.get_min_supported() for name, group in groups.items() if group is not None}
    return {}


def aten_operators() -> list[str]:
    """Every aten overload that torch has, `aten::add.Tensor`: those that write into an argument left out."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    return sorted(name for name in names if not _writes(name))


def _writes(name: str) -> bool:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    return found is None or bool(found._schema.is_mutable)


def is_composite(name: str) -> bool:
    """Whether torch itself writes the operator in terms of others, so that an exporter never sees it."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"))
