"""What each submodule is called with while a model runs in eager: recorded at every probe, to export it alone."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.nested import Value, opened, output_leaves
from onnxpatch.messages.user_code import is_user_frame
from onnxpatch.patching.walk import modules
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Probe

_TORCH_OWN = ("__call__", "_call_impl", "_wrapped_call_impl", "_slow_forward", "__getattr__", "__init__", "extra_repr")


@dataclass(frozen=True)
class Unit:
    """What can be exported alone: a module, or one of its methods that another module calls directly."""

    path: str
    module: torch.nn.Module
    method: str = "forward"

    @property
    def key(self) -> tuple[int, str]:
        return id(self.module), self.method

    @property
    def name(self) -> str:
        shown = self.path or "(root)"
        return shown if self.method == "forward" else f"{shown}.{self.method}()"


@dataclass
class Recorded:
    """One call of a unit: its inputs and outputs, cloned."""

    inputs: Value
    outputs: list[Any]


@dataclass
class Tree:
    """Who calls whom while the example runs: the units below each unit, in the order of their first calls."""

    root: Unit
    below: dict[tuple[int, str], list[Unit]] = field(default_factory=dict)

    def children(self, unit: Unit) -> list[Unit]:
        return self.below.get(unit.key, [])


def _cloned(value: Any) -> Value:
    found = opened(value)
    found.leaves = [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in found.leaves]
    return found


# ------------------------------------------------------------------ who calls whom
def call_tree(model: torch.nn.Module, inputs: Inputs) -> Tree:
    """Run the example once in eager and watch. Methods that one module calls on another count as units too."""
    root = Unit("", model)
    tree, stack = Tree(root), [root]
    paths = {id(module): path for path, module in reversed(list(modules(model)))}
    with _hooked(model, root, tree, stack):
        eager = Eager(model, inputs)
        before = sys.getprofile()
        watcher = _MethodWatch(paths, tree, stack)
        sys.setprofile(watcher)
        try:
            eager.ask(inputs.values())
        finally:
            sys.setprofile(before)
    return tree


def _add(tree: Tree, parent: Unit, child: Unit) -> None:
    known = tree.below.setdefault(parent.key, [])
    if all(unit.key != child.key for unit in known) and parent.key != child.key:
        known.append(child)


@contextlib.contextmanager
def _hooked(model: torch.nn.Module, root: Unit, tree: Tree, stack: list[Unit]) -> Iterator[None]:
    handles = []
    seen = {id(model)}
    for path, module in modules(model):
        if id(module) in seen or isinstance(module, torch.jit.ScriptModule):
            continue
        seen.add(id(module))
        unit = Unit(path, module)

        def enter(_m: Any, _a: Any, unit: Unit = unit) -> None:
            _add(tree, stack[-1], unit)
            stack.append(unit)

        def leave(_m: Any, _a: Any, _o: Any, unit: Unit = unit) -> None:
            if stack[-1].key == unit.key:
                stack.pop()

        handles += [module.register_forward_pre_hook(enter, prepend=True), module.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _MethodWatch:
    """A profile function that sees a module's method called from another module's code."""

    def __init__(self, paths: dict[int, str], tree: Tree, stack: list[Unit]) -> None:
        self._paths, self._tree, self._stack = paths, tree, stack
        self._open: dict[int, Unit] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "return" and id(frame) in self._open:
            unit = self._open.pop(id(frame))
            if self._stack[-1].key == unit.key:
                self._stack.pop()
        if event != "call" or frame.f_code.co_varnames[:1] != ("self",):
            return
        module, name = frame.f_locals.get("self"), frame.f_code.co_name
        if id(module) not in self._paths or not self._crosses(module, name, frame):
            return
        assert isinstance(module, torch.nn.Module)
        unit = Unit(self._paths[id(module)], module, name)
        _add(self._tree, self._stack[-1], unit)
        self._stack.append(unit)
        self._open[id(frame)] = unit

    def _crosses(self, module: Any, name: str, frame: FrameType) -> bool:
        if name in _TORCH_OWN or name.startswith("<") or self._stack[-1].module is module:
            return False
        own = getattr(type(module), name, None)
        if getattr(own, "__code__", None) is not frame.f_code or not is_user_frame(frame):
            return False
        caller = frame.f_back
        return caller is not None and caller.f_code.co_name not in _TORCH_OWN


# ------------------------------------------------------------------ recording
def record(
    model: torch.nn.Module, inputs: Inputs, probes: Sequence[Probe], units: Sequence[Unit]
) -> dict[tuple[int, str], list[list[Recorded]]]:
    """For each unit, by its key: for each probe the calls it gets, in order. The model must be as it is unpatched."""
    found: dict[tuple[int, str], list[list[Recorded]]] = {unit.key: [] for unit in units}
    undo: list[Callable[[], None]] = []
    try:
        for unit in units:
            undo += _watch(unit, found[unit.key])
        eager = Eager(model, inputs)
        for probe in probes:
            for calls in found.values():
                calls.append([])
            eager.ask(probe.values)
    finally:
        for one in undo:
            one()
    return found


def _watch(unit: Unit, into: list[list[Recorded]]) -> list[Callable[[], None]]:
    pending: list[Value] = []

    def enter(args: Any, kwargs: Any) -> None:
        pending.append(_cloned((args, kwargs)))

    def leave(output: Any) -> None:
        outputs = [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in output_leaves(output)]
        into[-1].append(Recorded(pending.pop(), outputs))

    if unit.method != "forward":
        return [_wrapped(unit, enter, leave)]
    before = unit.module.register_forward_pre_hook(lambda _m, a, k: enter(a, k), with_kwargs=True, prepend=True)
    after = unit.module.register_forward_hook(lambda _m, _a, o: leave(o))
    return [before.remove, after.remove]


def _wrapped(unit: Unit, enter: Callable[[Any, Any], None], leave: Callable[[Any], None]) -> Callable[[], None]:
    original = getattr(unit.module, unit.method)

    def recording(*args: Any, **kwargs: Any) -> Any:
        enter(args, kwargs)
        output = original(*args, **kwargs)
        leave(output)
        return output

    held = vars(unit.module)
    held[unit.method] = recording
    return lambda: held.pop(unit.method, None) and None
