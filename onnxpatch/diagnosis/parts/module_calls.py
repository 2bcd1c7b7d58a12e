"""Which module calls which while a model runs in eager, and the leaves of what is handed over.

`call_tree` runs the example once and finds which module calls which; methods that one module calls on another
(`self.decoder.embed(x)`) count as units of their own.

    def forward(self, x):              hooks on every module:   (root) calls encoder
        x = self.encoder(x)
        return self.decoder.step(x)    no hook sees this call: the profile function does. (root) calls decoder.step()

It is the calls that count, not the tree of attributes: a module may be kept in one place and called from another.

Arguments and outputs are flat lists of leaves. torch's pytree opens tuples, lists, dicts and registered classes; plain
objects that some models pass between their modules (a cache, an `Encoding` with masks) are opened here too, and
`Value.rebuild` puts new leaves into copies, so that an object of the caller is never changed:

    {"x": tensor, "cache": Cache(keys=tensor, used=3)}    leaves: tensor, tensor, 3
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import FrameType
from typing import Any, NamedTuple

import torch

from onnxpatch._torch import pytree
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.modules import modules
from onnxpatch.messages.user_code import is_user_frame
from onnxpatch.process import undone
from onnxpatch.verification.eager import Eager

_DEEPEST = 3  # objects inside objects: deep enough for caches of layers, and an end for those that refer to each other


class _Form(NamedTuple):
    """The containers of a value without its leaves.

    spec: the pytree; objects: for each of its leaves the object that was opened there and the form of its attributes,
    or None for a plain leaf.
    """

    spec: pytree.TreeSpec
    objects: tuple[tuple[object, _Form] | None, ...]


@dataclass
class Value:
    """A nested value as its leaves and its form."""

    leaves: list[object]
    form: _Form

    def rebuild(self, leaves: Sequence[object]) -> Any:
        """The value with other leaves, in the same order. Containers and objects are new."""
        return _rebuild(self.form, iter(leaves))


# What two values of the same form share: the text of the pytree, and for objects their class and the key of their form.
FormKey = tuple[str, tuple["tuple[type, FormKey] | None", ...]]


def taken_apart(value: object) -> Value:
    """`value` with its pytrees, and its objects that have tensors among their attributes, taken apart."""
    leaves: list[object] = []
    return Value(leaves, _open(value, leaves, _DEEPEST))


def _open(value: object, into: list[object], depth: int) -> _Form:
    flat, spec = pytree.tree_flatten(value)
    objects: list[tuple[object, _Form] | None] = []
    for leaf in flat:
        if depth and _has_tensor_attributes(leaf):
            objects.append((leaf, _open(dict(vars(leaf)), into, depth - 1)))
        else:
            into.append(leaf)
            objects.append(None)
    return _Form(spec, tuple(objects))


def _has_tensor_attributes(leaf: object) -> bool:
    # The tensors of a module are its weights, and not values that are passed on.
    if isinstance(leaf, torch.Tensor | torch.nn.Module | type) or not hasattr(leaf, "__dict__"):
        return False
    return any(isinstance(v, torch.Tensor) for v in vars(leaf).values())


def _rebuild(form: _Form, leaves: Iterator[object]) -> Any:
    flat = []
    for part in form.objects:
        if part is None:
            flat.append(next(leaves))
        else:
            original, attributes = part
            # Not by the constructor, whose arguments are not known.
            duplicate = copy.copy(original)
            vars(duplicate).update(_rebuild(attributes, leaves))
            flat.append(duplicate)
    return pytree.tree_unflatten(flat, form.spec)


def form_key(form: _Form) -> FormKey:
    """A key that is equal for two forms with the same containers and classes, whatever objects they were read from."""
    return str(form.spec), tuple(None if p is None else (type(p[0]), form_key(p[1])) for p in form.objects)


def graph_outputs(output: object) -> list[object]:
    """The tensors and whole numbers of an output, in order; flags, strings and None are no graph outputs."""
    found: list[Any] = []
    for leaf in taken_apart(output).leaves:
        if isinstance(leaf, torch.Tensor | torch.SymInt) or (isinstance(leaf, int) and not isinstance(leaf, bool)):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            found += graph_outputs([getattr(leaf, f.name) for f in fields(leaf)])
    return found


# Methods of torch.nn.Module between a call and forward, and methods that compute nothing.
_NO_UNITS = ("__call__", "_call_impl", "_wrapped_call_impl", "_slow_forward", "__getattr__", "__init__", "extra_repr")


Key = tuple[int, str]


@dataclass(frozen=True)
class Unit:
    """What can be exported alone: a module, or one of its methods that another module calls directly."""

    path: str
    module: torch.nn.Module
    method: str = "forward"

    @property
    def key(self) -> Key:
        return id(self.module), self.method

    @property
    def name(self) -> str:
        """The path for messages, with `.method()` where it is not forward."""
        path = self.path or "(root)"
        return path if self.method == "forward" else f"{path}.{self.method}()"


CallTree = dict[Key, list[Unit]]
"""Which unit calls which while the example runs: by key of a unit, those it calls, by first call."""


# ------------------------------------------------------------------ which unit calls which
def call_tree(model: torch.nn.Module, inputs: Inputs) -> CallTree:
    """Run the example once in eager, and return which unit calls which."""
    tree, stack = CallTree(), [Unit("", model)]
    # Reversed, so that a module under two names gets the first one, as in named_modules().
    paths = {id(module): path for path, module in reversed(list(modules(model)))}
    with _hooked(model, tree, stack):
        eager = Eager(model, inputs)
        before = sys.getprofile()
        watcher = _MethodWatch(paths, tree, stack)
        # A profile function is told of calls and returns only, and so costs less than a trace function.
        with undone(lambda: sys.setprofile(before)):
            sys.setprofile(watcher)
            eager.ask(inputs.values())
    return tree


def _add(tree: CallTree, parent: Unit, child: Unit) -> None:
    known = tree.setdefault(parent.key, [])
    if all(unit.key != child.key for unit in known) and parent.key != child.key:
        known.append(child)


@contextlib.contextmanager
def _hooked(model: torch.nn.Module, tree: CallTree, stack: list[Unit]) -> Iterator[None]:
    handles = []
    seen = {id(model)}
    for path, module in modules(model):
        # The submodules of a ScriptModule run inside TorchScript, without hooks.
        if id(module) in seen or isinstance(module, torch.jit.ScriptModule):
            continue
        seen.add(id(module))
        unit = Unit(path, module)

        def enter(_module: object, _args: object, unit: Unit = unit) -> None:
            _add(tree, stack[-1], unit)
            stack.append(unit)

        def leave(_module: object, _args: object, _output: object, unit: Unit = unit) -> None:
            if stack[-1].key == unit.key:
                stack.pop()

        handles += [module.register_forward_pre_hook(enter, prepend=True), module.register_forward_hook(leave)]

    def unhook() -> None:
        for handle in handles:
            handle.remove()

    with undone(unhook):
        yield


class _MethodWatch:
    """A profile function (sys.setprofile) that finds methods called from another module's code."""

    def __init__(self, paths: dict[int, str], tree: CallTree, stack: list[Unit]) -> None:
        self._paths, self._tree, self._stack = paths, tree, stack
        # By id: a frame lives until its return event, after which its entry is gone.
        self._open: dict[int, Unit] = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "return" and id(frame) in self._open:
            unit = self._open.pop(id(frame))
            if self._stack[-1].key == unit.key:
                self._stack.pop()
        # The cheapest test first: this runs at every call of a Python function.
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

    def _crosses(self, module: object, name: str, frame: FrameType) -> bool:
        """Whether a frame is a method of the user's that was called from another module."""
        if name in _NO_UNITS or name.startswith("<") or self._stack[-1].module is module:
            return False
        own = getattr(type(module), name, None)
        if getattr(own, "__code__", None) is not frame.f_code or not is_user_frame(frame):
            return False
        caller = frame.f_back
        return caller is not None and caller.f_code.co_name not in _NO_UNITS
