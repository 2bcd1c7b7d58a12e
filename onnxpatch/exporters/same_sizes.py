"""Axes that the user gave one name have one symbol under torch.export, from the first line of the forward on.

torch.export gives every axis a symbol of its own, and takes two for one from where the model compares them. Up to
there, `y.view(x.shape[0], -1)` has quotients of two batch sizes in its shape, and the export is refused, or a size is
fixed that is equal in the example. A Dim that two axes share would do it too, but torch.export refuses such a Dim for
guards that it lets pass for `Dim.DYNAMIC`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch.utils.hooks import RemovableHandle

from onnxpatch._torch import pytree
from onnxpatch.exporters.opened_call import OpenedCall
from onnxpatch.inputs.axis_specs import LeafSpec, has_operator
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.process import undone

# (index of the leaf in the flattened call, axis)
_Axis = tuple[int, int]


@contextlib.contextmanager
def same_sizes(model: torch.nn.Module, call: OpenedCall, inputs: Inputs, specs: Sequence[LeafSpec]) -> Iterator[None]:
    """Inside the block, the model compares the sizes of axes with one name before its forward runs."""
    groups = [axes for axes in _axes_by_name(inputs, specs).values() if len(axes) > 1]
    if not groups or not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        yield
        return
    # Keywords may come in another order than the example's: leaves are numbered in that of the call.
    order = list(call.kwargs)

    def compare(module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if len(args) != len(call.args) or set(kwargs) != set(order):
            return  # called in another way: which leaf is which is not known
        leaves = pytree.tree_leaves((args, {name: kwargs[name] for name in order}))
        for (leaf, axis), *others in groups:
            size = leaves[leaf].shape[axis]
            for other, place in others:
                # Not for the answer: a bool that is asked for makes torch.export replace one symbol by the other.
                bool(size == leaves[other].shape[place])

    handles: list[RemovableHandle] = []

    def remove() -> None:
        for handle in handles:
            handle.remove()

    with undone(remove):
        handles.append(model.register_forward_pre_hook(compare, with_kwargs=True))
        yield


def _axes_by_name(inputs: Inputs, specs: Sequence[LeafSpec]) -> dict[str, list[_Axis]]:
    """Where each name stands. The leaves are in the order of the call's."""
    found: dict[str, list[_Axis]] = {}
    for leaf in inputs.leaves:
        for axis, spec in specs[leaf.index].items() if leaf.is_tensor else ():
            if isinstance(spec, str) and not has_operator(spec):
                found.setdefault(spec, []).append((leaf.index, axis))
    return found
