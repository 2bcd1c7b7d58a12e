"""`RELIED_ON`: the private torch APIs that onnxpatch uses, by which file, and what does not work without each.

`onnxpatch drift` compares the table with the installed torch. A test compares it with the code of this folder.

Importing onnxpatch must work without them. A name that a file of this folder needs at import is replaced by a class or
module that raises a LookupError when it is used. A name that is looked up later raises AttributeError or ImportError
there; `explain` recognizes such errors.
"""

from __future__ import annotations

import functools
import importlib
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from onnxpatch.errors import RefusedError

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_PROXY = "torch.fx.experimental.proxy_tensor"
_EXPORTER = "torch.onnx._internal.exporter"
_SYMPY = "torch.utils._sympy"
_TRACE = "stored constants, layer norm over a size, and branches are refused under trace and script"
_FORKED = "branches=True is refused"
_PRODUCTS = "branches that compute with a product of three sizes are refused under dynamo"
_CONCLUDED = "with branches=True under dynamo, sizes that a failed path fixed stay fixed, and the export is refused"
_LOOPS = "loops, and branches with other shapes, are refused under trace"
_SIZES = "sizes are unknown under trace, and branches on them are refused"
_BUILT = "every dynamo export builds torch's table of translations, half a second"
_ROUNDED = "x + 1e-8 is left out of graphs under dynamo, and such files are refused where it counts"
_AGAIN = "dynamo exports take up to twice as long: torch traces every program again"
_SIZED_BRANCHES = "branches whose sizes are data are refused under dynamo"
_CONSTANT = "constants under dynamo are computed in the graph"
_SCRIPTED = "functions that call int() and are compiled during a trace are refused"
_CAUGHT = "a model that catches an error of torch is refused"
_GUARDS = "conditions that torch.export cannot solve are refused as it refuses them"
_UNWRITTEN = "sizes are left as the model writes them"
_NEIGHBOURS = "nearest resizing between dynamic sizes is a Gather where one Resize would do"
_TABLES = "onnxpatch ops has no rows for that exporter"
_NO_LINES = "conditions on sizes are reported without their lines"
_NO_CONDITIONS = "conditions on sizes that the file lost are not probed"
_MODES = "after Ctrl-C at the wrong moment, a mode of onnxpatch may stay active"
_WEIGHTS = "the TorchScript exporter copies large weights three times"
_VIEWS = "writes through views are lost under trace, as in torch's own export, and such files are refused"
_AS_WRITTEN = "stand-ins get a call of a C++ function as it was written"
_LEFT = "after exports in several threads outside of onnxpatch, builtins.min and max stay torch's"
_COMPILED = "models that call a function made by torch.compile are refused under trace"
_COUNTED = "a backward recorded before an export is refused where the forward writes into a buffer"
_FORKED_EXPORT = "a process that was forked while another thread exported cannot export"
_BOTH_SIDES = "a costly side of a branch may run for every input under trace"
_HERE = Path(__file__).parent


class _Api(NamedTuple):
    """A private API. path: dotted; after `Class()` come attributes of instances. used_in: a file of this folder.
    without: what does not work if it is gone. moved_to: what that file uses instead in torch versions that lack it."""

    path: str
    used_in: str
    without: str
    moved_to: str = ""


RELIED_ON = (
    _Api("torch._guards.TracingContext", "__init__", "the mode for fake tensors shows whether torch.export runs"),
    _Api("torch._C._get_dispatch_mode", "__init__", "stand-ins act under dynamo where a TracingContext is kept"),
    _Api("torch._C._TorchDispatchModeKey", "__init__", "stand-ins act under dynamo where a TracingContext is kept"),
    _Api("torch.testing._internal", "operator_tables", "drift lists no new operators"),
    _Api("torch.utils._pytree", "__init__", "arguments cannot be read: every export is refused"),
    _Api("torch._numpy", "__init__", "arrays of NumPy whose shape is a size keep the one of the example"),
    _Api("torch._C._get_tracing_state", "function_modes", _TRACE),
    _Api("torch._C._set_tracing_state", "function_modes", _TRACE),
    _Api("torch._C.DisableTorchFunction", "function_modes", "patches of functions are refused"),
    _Api("torch.overrides._get_current_function_mode_stack", "function_modes", _MODES),
    _Api("torch.overrides._pop_mode", "function_modes", _MODES),
    _Api("torch.overrides._push_mode", "function_modes", _MODES),
    _Api("torch.utils._python_dispatch._get_current_dispatch_mode_stack", "function_modes", _MODES),
    _Api("torch.utils._python_dispatch._pop_mode", "function_modes", _MODES),
    _Api("torch.utils._python_dispatch._push_mode", "function_modes", _MODES),
    _Api("torch._C._functorch.get_dynamic_layer_stack_depth", "function_modes", _MODES),
    _Api("torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth", "function_modes", _MODES),
    _Api(f"{_PROXY}.get_proxy_mode", "function_modes", _CAUGHT),
    _Api(f"{_PROXY}.get_proxy_slot", "tensor_origins", _CONSTANT),
    _Api(f"{_PROXY}._AttrProxy", "__init__", "models with shared modules are exported unpatched"),
    _Api("torch.utils._python_dispatch._disable_current_modes", "tensor_origins", _CONSTANT),
    _Api(
        "torch.utils._python_dispatch.TorchDispatchMode",
        "dispatch_modes",
        "sizes to probe are refused: no verification",
    ),
    _Api("torch._ops.OpOverload", "tensor_origins", _CONSTANT),
    _Api(f"{_SHAPES}.ShapeEnv", "fake_sizes", _SIZES),
    _Api(f"{_SHAPES}.ShapeEnv._get_user_frame", "fake_sizes", "exports under trace take a second longer"),
    _Api("torch.fx.experimental.sym_node.SymNode.expr", "cond", "symbolic sizes cannot be compared: they are refused"),
    _Api(f"{_SHAPES}.ShapeEnv.create_symboolnode", "cond", _FORKED),
    _Api(f"{_SHAPES}.ShapeEnv.create_symfloatnode", "cond", _FORKED),
    _Api(f"{_SHAPES}.ShapeEnv.create_symintnode", "cond", _FORKED),
    _Api(f"{_SHAPES}.ShapeEnv.suppress_guards", "cond", _FORKED),
    _Api(f"{_SHAPES}.ShapeEnv.replace", "cond", _FORKED),
    _Api(f"{_SHAPES}.ShapeEnv().var_to_range", "cond", _FORKED),
    _Api(f"{_SYMPY}.value_ranges.ValueRanges", "cond", _FORKED),
    _Api(f"{_SYMPY}.value_ranges.bound_sympy", "cond", _FORKED),
    _Api(f"{_SYMPY}.interp.sympy_interp", "cond", _PRODUCTS),
    _Api(f"{_SYMPY}.reference.PythonReferenceAnalysis", "cond", _PRODUCTS),
    _Api(f"{_SHAPES}.ShapeEnv()._update_version_counter", "cond", _CONCLUDED),
    _Api("torch.jit.CompilationUnit.define", "cond", _LOOPS),
    _Api("torch._C._jit_pass_inline", "cond", _LOOPS),
    _Api("torch._C._create_function_from_graph", "cond", _LOOPS),
    _Api("torch._subclasses.fake_tensor.FakeTensorMode.from_tensor", "fake_sizes", _SIZES),
    _Api("torch._subclasses.fake_tensor.FakeTensorMode.__torch_dispatch__", "fake_sizes", _SIZES),
    _Api("torch._dispatch.python.enable_python_dispatcher", "fake_sizes", _SIZES),
    _Api("torch._dynamo.source.ConstantSource", "fake_sizes", _SIZES),
    _Api(f"{_SHAPES}.DimDynamic", "fake_sizes", _SIZES),
    _Api(f"{_SHAPES}.StatelessSymbolicContext", "fake_sizes", _SIZES),
    _Api(
        "torch.fx.experimental._config.backed_size_oblivious",
        "fake_sizes",
        "branches on sizes of 1 are refused under trace",
    ),
    _Api(f"{_EXPORTER}._registration.ONNXRegistry.from_torchlib", "exporters", _BUILT),
    _Api(f"{_EXPORTER}._torchlib._torchlib_registry.get_torchlib_ops", "exporters", _BUILT),
    _Api("torch._C._dispatch_get_all_op_names", "exporters", _BUILT),
    _Api(f"{_EXPORTER}._fx_passes.decompose_with_registry", "operator_tables", _AGAIN),
    _Api(f"{_EXPORTER}._fx_passes.insert_type_promotion_nodes", "operator_tables", _SIZED_BRANCHES),
    _Api("torch.fx.experimental._config.soft_pending_unbacked_not_found_error", "operator_tables", _SIZED_BRANCHES),
    _Api("torch.fx.experimental.symbolic_shapes.rebind_unbacked", "operator_tables", _SIZED_BRANCHES),
    _Api("torch._C._dispatch_has_kernel_for_dispatch_key", "operator_tables", _AGAIN),
    _Api("torch._ops.HigherOrderOperator", "operator_tables", _AGAIN),
    _Api("onnxscript.rewriter.pattern.SimplePatternMatcher._match_constant", "exporters", _ROUNDED),
    _Api("torch._ops.HigherOrderOperator", "function_modes", "patches of functions act in no branch under dynamo"),
    _Api(f"{_EXPORTER}._capture_strategies.CAPTURE_STRATEGIES", "exporters", "a dynamo export is one step for doctor"),
    _Api("torch._export.non_strict_utils._tensor_min_max", "one_export", _LEFT),
    _Api("torch.compiler._is_exporting_flag", "one_export", _FORKED_EXPORT),
    _Api("torch.compiler._is_compiling_flag", "one_export", _FORKED_EXPORT),
    _Api("torch.onnx._internal.torchscript_exporter._globals.GLOBALS", "one_export", _FORKED_EXPORT),
    _Api("torch._C._jit_onnx_log", "one_export", "the TorchScript exporter prints graphs where it fails"),
    _Api("torch._C._jit_pass_onnx_deduplicate_initializers", "script_tracing", _WEIGHTS),
    _Api("torch._C._jit_pass_cse", "cond", _BOTH_SIDES),
    _Api("torch._C._jit_pass_dce", "cond", _BOTH_SIDES),
    _Api("torch._C._jit_pass_dce_allow_deleting_nodes_with_side_effects", "cond", "unused loops stay in files"),
    _Api("torch._C.ScriptModule.code", "__init__", "compiled models keep what a comparison leaves in their state"),
    _Api("torch.autograd.grad_mode.inference_mode.__enter__", "exporters", "parts in inference mode are refused"),
    _Api("torch.compiler._is_exporting_flag", "exporters", "models with scripted parts are refused"),
    _Api(f"{_SHAPES}.ShapeEnv._log_guard", "exporters", _NO_LINES),
    _Api(f"{_SHAPES}.ShapeEnv().var_to_sources", "exporters", _NO_LINES),
    _Api(f"{_SHAPES}.uninteresting_files", "guards", _GUARDS),
    _Api("torch._guards.detect_fake_mode", "guards", _GUARDS),
    _Api(f"{_SHAPES}.ShapeEnv().guards", "guards", _GUARDS),
    _Api(f"{_SHAPES}.ShapeEnv().deferred_runtime_asserts", "guards", _NO_CONDITIONS),
    _Api(f"{_SYMPY}.reference.ReferenceAnalysis.int_truediv", "guards", _GUARDS),
    _Api(f"{_SYMPY}.reference.PythonReferenceAnalysis.round_to_int", "guards", _GUARDS),
    _Api(f"{_SHAPES}._fast_expand", "guards", "long expressions of sizes take as long as in torch"),
    _Api(f"{_SYMPY}.functions", "guards", _NO_CONDITIONS),
    _Api(
        "torch.fx._symbolic_trace._is_fx_tracing_flag",
        "script_tracing",
        _COMPILED,
        moved_to="torch.fx._symbolic_trace._is_fx_tracing_context",
    ),
    _Api("torch._dynamo.config.error_on_nested_fx_trace", "script_tracing", _COMPILED),
    _Api("torch.jit._script._script_impl", "script_tracing", _SCRIPTED),
    _Api("torch._C._autograd._unsafe_set_version_counter", "dispatch_modes", _COUNTED),
    _Api(
        "torch._higher_order_ops.utils._hop_compile_and_call", "dispatch_modes", "scans of several states are refused"
    ),
    _Api("torch.utils.flop_counter.flop_registry", "dispatch_modes", "products count by the elements of their results"),
    _Api(f"{_EXPORTER}._decomp.get_onnx_implemented_overloads", "operator_tables", _TABLES),
    _Api(f"{_EXPORTER}._decomp.create_onnx_friendly_decomposition_table", "operator_tables", _TABLES),
    _Api("torch.onnx._internal.torchscript_exporter.registration", "operator_tables", "torch.onnx's own is asked"),
    _Api("torch._C._dispatch_get_all_op_names", "operator_tables", _TABLES),
    _Api("torch._C._jit_get_schemas_for_operator", "signatures", _AS_WRITTEN),
    _Api("torch._jit_internal.boolean_dispatched", "signatures", _AS_WRITTEN),
    _Api("torch._C.OptionalType.ofTensor", "function_modes", "under trace, Resize and Clip keep what may be left out"),
    _Api(
        "torch.onnx._internal.torchscript_exporter.jit_utils.GraphContext",
        "function_modes",
        "Fourier transforms of a dynamic length fail under trace",
    ),
    _Api(f"{_SHAPES}.ShapeEnv.replace", "symbolic_sizes", _NEIGHBOURS),
    _Api("torch._C._get_value_trace", "symbolic_sizes", "every tensor counts as data under trace"),
    _Api("torch._C._set_value_trace", "traced_writes", _VIEWS),
    _Api("torch._C.TensorType.create_from_tensor", "traced_nodes", _VIEWS),
    _Api("torch._C.TensorType.get", "traced_nodes", _VIEWS),
    _Api("torch._C.ListType.ofInts", "traced_nodes", _VIEWS),
    _Api("torch._C.IntType.get", "traced_nodes", _VIEWS),
    _Api("torch._C.NoneType.get", "traced_nodes", _VIEWS),
    _Api(f"{_SYMPY}.functions.FloatTrueDiv", "symbolic_sizes", _UNWRITTEN),
    _Api(f"{_SYMPY}.functions.IntTrueDiv", "symbolic_sizes", _UNWRITTEN),
    _Api(f"{_SYMPY}.functions.ToFloat", "symbolic_sizes", _UNWRITTEN),
    _Api(f"{_SYMPY}.functions.Mod", "symbolic_sizes", _UNWRITTEN),
    _Api(f"{_SYMPY}.functions.PythonMod", "symbolic_sizes", _UNWRITTEN),
)


class _GoneError(RefusedError, LookupError):
    """The installed torch has nothing under that name."""


def sentence(api: _Api) -> str:
    """The sentence to show where a private API is gone."""
    version = importlib.import_module("torch").__version__
    return f"torch {version} has no {api.path}: {api.without}. `onnxpatch drift` shows what else has moved"


def find(path: str) -> object:
    """Import and return the object at a dotted path. Raises a LookupError if there is none."""
    found: Any = importlib.import_module("torch")
    names = path.split(".")
    for at, part in enumerate(names[1:], 2):
        name, made, _ = part.partition("()")
        try:
            found = getattr(found, name) if hasattr(found, name) else importlib.import_module(".".join(names[:at]))
        except ImportError as error:
            raise _GoneError(path) from error
        # What `__init__` sets is on no class: one instance is made to look at.
        found = _instance(found) if made else found
    return found


@functools.cache
def _instance(cls: Any) -> object:
    return cls()


def gone_class(path: str) -> Any:
    """A class to derive from in place of one that is gone. Its constructor raises the error."""

    class Gone:
        def __init__(self, *args: object, **kwargs: object) -> None:
            raise _GoneError(sentence(_listed(path)))

    return Gone


def gone_module(path: str) -> Any:
    """In place of a module that is gone: any attribute of it raises the error."""

    class Gone:
        def __getattr__(self, name: str) -> Any:
            raise _GoneError(sentence(_listed(path)))

    return Gone()


def explain(error: BaseException) -> str | None:
    """A sentence about the missing API, if `error` arose in this folder over one that is gone; None for others."""
    if isinstance(error, _GoneError):
        return str(error)
    if not isinstance(error, AttributeError | ImportError):
        return None
    # Such an error may come from anywhere: only one that was raised in this folder is about these APIs.
    frames = traceback.walk_tb(error.__traceback__)
    if not any(Path(frame.f_code.co_filename).parent == _HERE for frame, _ in frames):
        return None
    # The error has the last part of a path only, in which several APIs may end.
    named = (api for api in RELIED_ON if api.path.rpartition(".")[2] in str(error))
    return next((sentence(api) for api in named if not is_there(api.path)), None)


def is_there(path: str) -> bool:
    """Whether the installed torch has it."""
    try:
        find(path)
    except _GoneError:
        return False
    return True


def _listed(path: str) -> _Api:
    return next(api for api in RELIED_ON if api.path == path)
