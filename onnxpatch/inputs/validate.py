"""Checks of what a call is given, before any work: numbers, the opset, and models that cannot be run or walked."""

from __future__ import annotations

import math
import numbers
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping

import torch
from torch.nn.parameter import is_lazy

from onnxpatch._torch import exporting
from onnxpatch._torch.one_export import forked_inside
from onnxpatch.errors import InputError
from onnxpatch.inputs.modules import modules, offloaded, other_in_eval
from onnxpatch.messages.user_code import said_by

_LOWEST_OPSET = 7  # the lowest that torch's exporters write


def check_numbers(tolerance: float, max_probes: int) -> None:
    """Raise InputError for a tolerance below 0, NaN or infinite, and for max_probes below 1."""
    if not is_real(tolerance) or not math.isfinite(tolerance) or tolerance < 0:
        raise InputError(
            f"tolerance={tolerance!r}: give a share of the output's largest magnitude, 0 or more, such as 0.001"
        )
    if not _is_whole(max_probes) or max_probes < 1:
        raise InputError(f"max_probes={max_probes!r}: give 1 or more, since the example itself is one probe")


def check_callbacks(flatten: object = None, progress: object = None) -> None:
    """Raise InputError for a `flatten` or a `progress` that cannot be called."""
    if flatten is not None and not callable(flatten):
        raise InputError(
            f"flatten must be a function from an output to a list of its tensors, not {type(flatten).__name__}"
        )
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise InputError(f"progress must be a function of (stage, done, of), or True, not {type(progress).__name__}")


def checked_path(file: object) -> str:
    """The path of a .onnx file. Raises InputError for what is no path."""
    try:
        return os.fsdecode(file)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"the file must be given by its path, not as {type(file).__name__}") from None


def check_opset(opset: int) -> None:
    """Raise InputError where torch's exporters or the installed onnx do not know the opset."""
    import onnx

    highest = onnx.defs.onnx_opset_version()
    if not _is_whole(opset) or not _LOWEST_OPSET <= opset <= highest:
        raise InputError(f"opset {opset!r}: the installed onnx {onnx.__version__} knows {_LOWEST_OPSET} to {highest}")


def is_real(value: object) -> bool:
    """Whether it is a real number, and no bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_data(data: object, sizes: object) -> None:
    """Raise InputError for `data` that is no sequence of inputs, or `sizes` that are no lists of whole numbers."""
    if not isinstance(data, list | tuple):
        raise InputError(f"data must be a list of inputs, each args or (args, kwargs), not {type(data).__name__}")
    if sizes is None:
        return
    wanted = 'sizes must name dimensions with lists of whole numbers, such as {"H": [32, 518]}'
    if not isinstance(sizes, Mapping):
        raise InputError(f"{wanted}, not {type(sizes).__name__}")
    for name, listed in sizes.items():
        if isinstance(listed, str) or not isinstance(listed, Iterable):
            raise InputError(f"{wanted}; {name!r} has {listed!r}")
        for size in listed:
            if not _is_whole(size):
                raise InputError(f"{wanted}; {name!r} has {size!r}")


def check_dense(values: Iterable[object]) -> None:
    """Raise InputError for a sparse tensor: no graph takes one, and none can be drawn at another size."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.layout != torch.strided:
            raise InputError(f"the example has a tensor of layout {value.layout}, which no graph takes: make it dense")


def refuse_no_module(model: object) -> None:
    """Raise InputError for a model that is no torch.nn.Module, or that torch cannot walk."""
    if not isinstance(model, torch.nn.Module):
        called = f"the class {model.__name__}: call it first" if isinstance(model, type) else type(model).__name__
        called += ": give a function that calls it, lambda x: f(x)" if callable(model) and ":" not in called else ""
        raise InputError(f"model must be a torch.nn.Module, not {called}")
    for path, module in modules(model):
        if type(module).__hash__ is None:
            name = type(module).__name__
            raise InputError(
                f"{path or 'the model itself'} cannot be walked: {name} has an __eq__ and no __hash__, and torch keeps "
                f"modules in sets. Give {name} `__hash__ = torch.nn.Module.__hash__`"
            )


def check_depth(model: torch.nn.Module) -> None:
    """Raise InputError for modules that are nested deeper than torch itself can walk, or that refuse to be walked."""
    try:
        for _ in model.modules():
            pass
    except RecursionError:
        raise InputError(
            f"the modules of {type(model).__name__} are nested deeper than Python's recursion limit "
            f"({sys.getrecursionlimit()}), and torch cannot walk them: raise it with sys.setrecursionlimit"
        ) from None
    except Exception as error:
        raise InputError(
            f"torch cannot walk the modules of {type(model).__name__}: {type(error).__name__}: {said_by(error)}"
        ) from error


def check_surroundings(exporter_asked: str = "") -> None:
    """Raise InputError where no export can work: in a forward that is exported, with the default device meta, without
    a folder for temporary files, or in a process that was forked in the middle of an export."""
    try:
        tempfile.gettempdir()  # torch asks for it too
    except OSError as error:
        raise InputError(f"{error.strerror}: name a folder that can be written, TMPDIR=...") from None
    if exporter_asked == "dynamo" and forked_inside():
        raise InputError(
            "this process was forked while another thread was in torch.export, which does not work here since: export "
            'by trace, or in a process that is started anew (multiprocessing.get_context("spawn"))'
        )
    exporter = exporting()
    if exporter is not None:
        raise InputError(
            f"it is called while the {exporter} exporter runs a model, and what is computed here goes into that graph: "
            "call it outside of forward"
        )
    if torch.get_default_device().type == "meta":
        raise InputError(
            "the default device is meta (torch.set_default_device), so new tensors hold no values, and there is "
            'nothing to compare: call torch.set_default_device("cpu"), or export inside `with torch.device("cpu"):`'
        )


def check_runnable(model: torch.nn.Module) -> None:
    """Raise InputError for a model that has no values yet: on the meta device, or with lazy parameters."""
    if not isinstance(model, torch.nn.Module):
        if isinstance(model, type) or not callable(model):
            refuse_no_module(model)
        return
    refuse_no_module(model)
    check_depth(model)
    tensors = [*model.named_parameters(), *model.named_buffers()]
    name = type(model).__name__
    if lazy := [path for path, tensor in tensors if is_lazy(tensor)]:
        raise InputError(
            f"{name} has lazy parameters that have no shape yet ({_some(lazy)}): run it once, model(*args), before it "
            "is exported"
        )
    if sharded := [path for path, tensor in tensors if hasattr(type(tensor), "full_tensor")]:
        raise InputError(
            f"{name} has weights that are shared out among processes ({_some(sharded)}), which no file holds: load "
            "what torch.distributed's get_model_state_dict gives with full_state_dict=True into a model of one process"
        )
    brought = offloaded(model)
    if meta := [path for path, tensor in tensors if tensor.is_meta and path not in brought]:
        raise InputError(
            f"{name} has tensors on the meta device ({_some(meta)}), which hold no values, so there is nothing to "
            "export or compare: load its weights first, or export(..., weights='model.safetensors'). "
            "onnxpatch.plan and patched take it as it is"
        )


def refuse_training(model: torch.nn.Module) -> None:
    """Raise InputError for a model in training mode that computes something else in eval."""
    if others := other_in_eval(model):
        path, module = others[0]
        where = f"{path!r}, a {type(module).__name__}" if path else "its forward"
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise InputError(
            f"{type(model).__name__} is in training mode, where outputs are random or depend on the batch "
            f"({where}{more}): call model.eval() first (before torch.export.export, where you use that), or pass "
            "check=False to export it in training mode, not compared"
        )


def _some(paths: Iterable[str]) -> str:
    first, *others = paths
    return f"{first} and {len(others)} more" if others else first
