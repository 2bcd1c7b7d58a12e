"""Which modules in training mode would compute something else in eval."""

from __future__ import annotations

import dis
import types
from typing import Any

import torch
from torch import fx, nn

from onnxpatch.inputs.module_walk import modules

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
    if not module.training or isinstance(module, torch.jit.ScriptModule):
        return module.training
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
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    # An assignment names it as well.
    loads = (one.argval == "training" and one.opname.startswith("LOAD") for one in dis.get_instructions(code))
    return ("training" in code.co_names and any(loads)) or any(map(_reads_mode, inner))


def _in_training(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return False
    given = dict(zip((one.name for one in schema.arguments), node.args, strict=False)) | node.kwargs
    return any(given.get(name) is True for name in ("train", "training"))
