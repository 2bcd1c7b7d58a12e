"""The module of what a caller gives as a model (`as_module`); the modules in it, each once; which would compute
something else in eval; which have their weights elsewhere.
"""

from __future__ import annotations

import dis
import json
import os
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from onnxpatch.errors import InputError
from onnxpatch.inputs.given_model import FUNCTIONS, around_program, calling, of_program
from onnxpatch.messages.user_code import code_within

# nn.Module.__init__ puts these first in __dict__; the user's attributes follow.
_OWN = tuple(vars(torch.nn.Module()))
_CONTAINERS = (list, tuple, dict)
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
Found = tuple[str, torch.nn.Module]


def as_module(model: object) -> Any:
    """The module to export for `model`; what has none comes back as it is.

    A torch.export.ExportedProgram: a module that calls it, and declares its example and dynamic sizes. A torch.fx
    graph, such as a program's `module()`: a module that calls it, since torch.export would run its nodes past all
    patches. DataParallel and DistributedDataParallel: the module in them. A function, a method, a functools.partial or
    an object with __call__: a module that calls it, with the modules that it reaches as its parts, so that their
    patches apply.
    """
    if isinstance(model, torch.export.ExportedProgram):
        return of_program(model)
    while isinstance(model, _WRAPPERS):
        model = model.module
    if is_program(model):
        return around_program(model)
    if isinstance(model, nn.Module | type) or not _in_python(model):
        return model
    return calling(model)


def is_program(module: object) -> bool:
    """Whether a module runs a torch.fx graph."""
    # A scripted one without a forward, such as a list, raises RuntimeError where its graph is asked for.
    if isinstance(module, torch.jit.ScriptModule) or not isinstance(module, nn.Module):
        return False
    return isinstance(getattr(module, "graph", None), torch.fx.Graph)


def _in_python(value: object) -> bool:
    """Whether it is a function that Python code defines, or an object whose class defines __call__ in Python."""
    return isinstance(value, FUNCTIONS) or isinstance(vars(type(value)).get("__call__"), types.FunctionType)


def modules(model: torch.nn.Module) -> Iterator[Found]:
    """(path, module) of every module under `model`, the root ("") first, parents before children.

    A module with several names comes once for each: the first name is its path, the others are aliases. The children
    of an alias are not visited again. Modules in plain containers get a path as Python would write it: `blocks[0]`.
    """
    seen: set[int] = set()
    stack: list[Found] = [("", model)]
    while stack:
        path, module = found = stack.pop()
        yield found
        if id(module) in seen:
            continue
        seen.add(id(module))
        children = _children(path + "." if path else "", module)
        if children:
            # A stack gives its last entry first, and paths are to come in the order of the model.
            children.reverse()
            stack += children


def _children(prefix: str, module: torch.nn.Module) -> list[Found]:
    attributes: dict[str, Any] = module.__dict__
    # A traced module keeps its submodules in C++, and has no such entry.
    submodules = attributes["_modules"] if "_modules" in attributes else dict(module.named_children())
    children = [(prefix + name, child) for name, child in submodules.items() if child is not None] if submodules else []
    # An attribute set before super().__init__() comes before torch's own; then look at all of them.
    usual = next(iter(attributes)) == _OWN[0]
    for name, value in islice(attributes.items(), len(_OWN) if usual else 0, None):
        if isinstance(value, _CONTAINERS) and value and name not in _OWN:
            children += _held(prefix + name, value)
    return children


def _held(path: str, container: Any) -> list[Found]:
    items = container.items() if isinstance(container, dict) else enumerate(container)
    return [(f"{path}[{key!r}]", value) for key, value in items if isinstance(value, torch.nn.Module)]


_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_STATISTICS = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip
# They ask for the mode to choose a faster path to the same numbers; their parts are asked by themselves.
_FASTER = (nn.TransformerEncoderLayer, nn.TransformerEncoder)


def other_in_eval(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """(path, module) of the modules in training mode whose outputs may differ in eval; empty where none does.

    A module is taken for one if its code reads `training`. Of torch's own, dropout of share 0 and norms without running
    statistics are none.
    """
    return [(path, module) for path, module in modules(model) if _differs(module)]


def _differs(module: Any) -> bool:
    if isinstance(module, fx.GraphModule):  # its mode is in the arguments of its nodes
        return any(_in_training(node) for node in module.graph.nodes)
    if isinstance(module, torch.jit.ScriptModule):
        return getattr(module, "training", False)  # a frozen one has no mode
    if not module.training or "_orig_mod" in module._modules:  # one of torch.compile around another
        return False
    if isinstance(module, _DROPOUT):
        return bool(module.p)
    if isinstance(module, _STATISTICS):
        return module.running_mean is not None
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return bool(module.dropout)
    return not isinstance(module, _FASTER) and _code_reads_mode(type(module))


def _code_reads_mode(kind: type) -> bool:
    classes = kind.__mro__
    own = classes[: classes.index(nn.Module)] if nn.Module in classes else classes
    functions = (value for one in own for value in vars(one).values())
    return any(isinstance(one, types.FunctionType) and _reads_mode(one.__code__) for one in functions)


def _reads_mode(code: types.CodeType) -> bool:
    naming = (one for one in code_within(code) if "training" in one.co_names)
    # An assignment names it as well.
    steps = (step for one in naming for step in dis.get_instructions(one))
    return any(step.argval == "training" and step.opname.startswith("LOAD") for step in steps)


def _in_training(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return False
    given = dict(zip((one.name for one in schema.arguments), node.args, strict=False)) | node.kwargs
    return given.get("p") != 0 and any(given.get(name) is True for name in ("train", "training"))


def offloaded(model: nn.Module) -> set[str]:
    """The paths of the tensors on the meta device whose values a hook has."""
    found: set[str] = set()
    for path, module in model.named_modules():
        found |= {f"{path}.{name}" if path else name for name, _, _ in _away(module)}
    return found


def _away(module: nn.Module) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    """(name, the tensor on the meta device, its value) of what the hook of a module brings in."""
    kept = _weights(getattr(module, "_hf_hook", None))
    if kept is None:
        return []
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return [(name, tensor, kept[name]) for name, tensor in tensors if tensor.is_meta and name in kept]


def _weights(hook: Any) -> Mapping[str, torch.Tensor] | None:
    """The `weights_map` of a hook, or of the first of several."""
    own = (_weights(one) for one in getattr(hook, "hooks", ()))
    found = getattr(hook, "weights_map", None)
    return found if found is not None else next((one for one in own if one is not None), None)


def _in_files(model: nn.Module, weights: str | os.PathLike[str]) -> dict[int, torch.Tensor]:
    """The values of the model's tensors on the meta device, by the tensor's id: views of a .safetensors file.

    The system reads a part of the file when it is asked for, and may drop it again.
    """
    path, name = Path(weights), type(model).__name__
    empty = [(of, one) for of, one in _tensors(model) if one.is_meta]
    if not empty:
        raise InputError(f"weights= is for a model on the meta device, and {name} has its weights: leave it out")
    try:
        from safetensors import SafetensorError, safe_open

        if path.suffix == ".json":
            there = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
            opened = {file: safe_open(path.with_name(file), framework="pt") for file in set(there.values())}
        else:
            opened = {path.name: safe_open(path, framework="pt")}
            there = dict.fromkeys(opened[path.name].keys(), path.name)
    except ImportError:
        raise InputError("weights= reads .safetensors files: pip install safetensors") from None
    except (OSError, ValueError, KeyError, AttributeError, SafetensorError) as error:
        raise InputError(f"{path} is no .safetensors file, nor the index of some ({error})") from None
    # A tensor of several names, as tied weights are, stands in the file under one of them.
    values = {id(one): _like(opened[there[of]].get_tensor(of), one) for of, one in empty if of in there}
    for of, one in empty:
        if id(one) not in values:
            raise InputError(
                f"{path} has no {of}, which is on the meta device: what a model computes when it is made is in no "
                "file; make the model on the CPU and put its parameters alone on the meta device"
            )
        found = values[id(one)]
        if (found.shape, found.dtype) != (one.shape, one.dtype):
            raise InputError(
                f"{of} is {one.dtype} {list(one.shape)} in {name}, and {found.dtype} {list(found.shape)} in {path}: "
                "make the model with the file's sizes and dtype"
            )
    return values


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


@contextmanager
def weights_brought(model: object, weights: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """While this is open, offloaded modules hold their weights, and their forward is the one below the hook. Weights
    that were made in inference mode, which no exporter takes, are tensors like others in the same memory.

    weights: a .safetensors file, or the .json index of several, which has what the model has on the meta device.
    """
    held: list[tuple[dict[str, Any], str, Any]] = []
    found = list(model.modules()) if isinstance(model, nn.Module) else []
    try:
        values = _in_files(model, weights) if weights is not None and isinstance(model, nn.Module) else {}
        for module in found if values else ():
            _fill(module, values, held)
        normal: dict[int, torch.Tensor] = {}
        for module in found:
            _fill(module, _normal(module, normal), held)
            away = _away(module)
            for name, meta, value in away:
                path, _, own = name.rpartition(".")
                owner = module.get_submodule(path)
                store = owner._parameters if isinstance(meta, nn.Parameter) else owner._buffers
                _put(held, store, own, _like(value, meta))
            if "_old_forward" in vars(module) and (away or hasattr(module._hf_hook, "prev_module_hook")):
                _put(held, vars(module), "forward", vars(module)["_old_forward"])
        yield
    finally:
        for store, key, value in reversed(held):
            store[key] = value


def _fill(module: nn.Module, values: dict[int, torch.Tensor], held: list[tuple[dict[str, Any], str, Any]]) -> None:
    for store in (module._parameters, module._buffers):
        for key, one in list(store.items()):
            if one is not None and id(one) in values:
                _put(held, store, key, values[id(one)])


def _normal(module: nn.Module, known: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Adds to `known`, by the id, a tensor for each of the module's that was made in inference mode."""
    for one in (*module._parameters.values(), *module._buffers.values()):
        if one is None or id(one) in known or type(one) not in (torch.Tensor, nn.Parameter):
            continue
        if one.is_inference():
            plain = torch.empty(0, dtype=one.dtype, device=one.device)
            plain.set_(one.untyped_storage(), one.storage_offset(), one.shape, one.stride())
            known[id(one)] = _like(plain, one)
    return known


def _put(held: list[tuple[dict[str, Any], str, Any]], store: dict[str, Any], key: str, value: object) -> None:
    held.append((store, key, store[key]))
    store[key] = value


def _like(value: torch.Tensor, meta: torch.Tensor) -> torch.Tensor:
    return nn.Parameter(value, requires_grad=meta.requires_grad) if isinstance(meta, nn.Parameter) else value
