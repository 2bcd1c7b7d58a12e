"""What declares a patch: `patch`, and in a layer's own code `onnx_forward`, `onnx_standin` and `keep`. `Registry` has
the patches, and finds those of onnxpatch and of plug-ins.

The decorators of layers replace `if torch.onnx.is_in_onnx_export():` in a forward:

    class Layer(nn.Module):
        def forward(self, x): ...           # eager

        @onnxpatch.onnx_forward
        def forward_onnx(self, x): ...      # runs in place of forward while an exporter runs

They only set an attribute, which is read when a model is patched: it costs nothing in eager.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal, TypeVar

import torch

from onnxpatch.errors import DuplicatePatchError
from onnxpatch.patching.proof import Proof
from onnxpatch.patching.when import ANY_TORCH_FUNCTION, When, joined
from onnxpatch.process import process_lock

ENTRY_POINTS = "onnxpatch.patches"
FORWARD = "__onnxpatch_forward__"
STAND_IN = "__onnxpatch_stand_in__"
KEEP = "__onnxpatch_keep__"
Method = TypeVar("Method", bound=Callable[..., Any])
Kept = TypeVar("Kept", "type[torch.nn.Module]", torch.nn.Module)
StandIn = TypeVar("StandIn", bound=Callable[..., Any])
Kind = Literal["class", "function", "replacement"]


@dataclass(frozen=True)
class Patch:
    """One declaration, as `onnxpatch.patch` makes it: what is replaced, by what, when, why, and the proof.

    name: unique in a registry; `only=` and `exclude=` take it. stand_in: the class or function that replaces the
        targets.
    targets, why, link, when, proof, options: see `onnxpatch.patch`. replaces: deprecated. takes_original: whether a
        function that stands in is given the original first.
    """

    name: str
    targets: tuple[str, ...]
    stand_in: Any
    why: str
    link: str | None = None
    when: When = field(default_factory=When)
    proof: Proof | None = None
    options: tuple[str, ...] = ()
    replaces: bool = False
    takes_original: bool = True

    @functools.cached_property
    def kind(self) -> Kind:
        """class: a mixin in front of the module's class; function: called in its place; replacement: a new module."""
        if self.replaces:
            return "replacement"
        return "class" if isinstance(self.stand_in, type) else "function"

    @functools.cached_property
    def declared_at(self) -> str:
        """File and line of the declaration."""
        stand_in = inspect.unwrap(self.stand_in)
        try:
            return f"{inspect.getsourcefile(stand_in)}:{inspect.getsourcelines(stand_in)[1]}"
        except (OSError, TypeError):  # defined in an interpreter, without a file
            return f"{stand_in.__module__}.{stand_in.__qualname__}"

    @functools.cached_property
    def ours(self) -> bool:
        """Whether it comes with onnxpatch. A user's patch of the same class or function goes before it."""
        return str(self.stand_in.__module__).startswith("onnxpatch.")

    @functools.cached_property
    def methods(self) -> frozenset[str]:
        """The methods that a class stand-in overrides."""
        # Without `object`, whose methods every class has.
        classes = self.stand_in.__mro__[:-1] if self.kind == "class" else ()
        return frozenset(name for cls in classes for name, value in vars(cls).items() if callable(value)) - {
            "onnxpatch_prepare"
        }

    @functools.cached_property
    def rank(self) -> tuple[bool, bool, str]:
        """The sort key of the patches of one function.

        A user's patch goes before onnxpatch's, and one that names the function before one that chooses by the call.
        Patches that choose by the call are sorted by name, so that the order is the same on every machine.
        """
        return self.ours, self.when.calls is not None, self.name

    @property
    def instead(self) -> str:
        """What the other patches do for a class whose source this patch does not support, as its proof shows it."""
        if self.proof is None:
            return "no other patch is known to replace it"
        general, none = ("/".join(some) for some in (self.proof.leaner, self.proof.fails))
        parts = [f"under {general} the general patches apply, with more nodes"] if general else []
        parts += [f"under {'/'.join(self.proof.slower)} it is right, and slower"] if self.proof.slower else []
        parts += [f"under {none} no other patch applies: {self.why}"] if none else []
        return "; ".join(parts)

    def same_declaration(self, other: Patch) -> bool:
        """Whether `other` is this declaration again, from a reloaded module or a notebook cell that ran twice."""
        return (self.stand_in.__module__, self.stand_in.__qualname__, self.declared_at) == (
            other.stand_in.__module__,
            other.stand_in.__qualname__,
            other.declared_at,
        )


class Registry:
    """Patches by name: `registry["lgamma"]`, `"lgamma" in registry`, `for patch in registry`.

    `onnxpatch.REGISTRY` has those of onnxpatch and of plug-ins, which are loaded when it is first read. An empty
    `Registry()` serves tests. failures: by module or entry point, why its patches could not be loaded.
    """

    def __init__(self, discover: bool = False) -> None:
        self._patches: dict[str, Patch] = {}
        self._undiscovered, self._loading = discover, False
        self._lock = process_lock()
        self.failures: dict[str, str] = {}

    def register(self, patch: Patch) -> None:
        """Add a patch; raises DuplicatePatchError if another declaration has its name."""
        known = self._patches.get(patch.name)
        if known is not None and not known.same_declaration(patch):
            raise DuplicatePatchError(
                f"patch {patch.name!r} is declared twice: at {known.declared_at} and at {patch.declared_at}. "
                "Give one of them another name=."
            )
        self._patches[patch.name] = patch

    def remove(self, name: str) -> None:
        """Remove a patch. Raises UnknownPatchError for a name that is not registered."""
        del self._patches[name]

    def __iter__(self) -> Iterator[Patch]:
        self._discover()
        # A copy: a patch may be registered while somebody iterates.
        return iter(list(self._patches.values()))

    def __getitem__(self, name: str) -> Patch:
        self._discover()
        return self._patches[name]

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._patches

    def _discover(self) -> None:
        if not self._undiscovered:
            return
        with self._lock:  # another thread that reads it first waits for all of them
            if self._loading:  # a patch's file may read the registry itself
                return
            self._loading = True
            package = importlib.import_module("onnxpatch.patches")
            # walk_packages imports packages too, and would end at an error there; `_load` has noted it by then.
            for info in pkgutil.walk_packages(package.__path__, "onnxpatch.patches.", onerror=lambda name: None):
                self._load(info.name, functools.partial(importlib.import_module, info.name))
            for entry in metadata.entry_points(group=ENTRY_POINTS):
                self._load(f"entry point {entry.name}", entry.load)
            self._undiscovered = False

    def _load(self, name: str, load: Callable[[], object]) -> None:
        # A file that cannot be imported must not disable the others; the plan shows the error.
        try:
            load()
        except Exception as error:
            self.failures[name] = f"{type(error).__name__}: {error}"


REGISTRY = Registry(discover=True)


def patch(
    *targets: str,
    why: str,
    name: str | None = None,
    link: str | None = None,
    when: When | None = None,
    proof: Proof | None = None,
    options: tuple[str, ...] = (),
    registry: Registry = REGISTRY,
    **deprecated: Any,
) -> Callable[[StandIn], StandIn]:
    """Declare a patch: the decorated class or function stands in for `targets` while a model is patched.

    targets: dotted paths, which are never imported. A module class ("einops.layers.torch.Rearrange", or
        "*.DinoVisionTransformer" for any class of that name): the decorated class is a mixin put in front of the
        instance's own class. A function ("torch.nn.functional.interpolate"): the decorated function is called with the
        original first, while an exporter runs the patched model, in its thread. It gets the arguments by the names
        that the original has for them, however the call was written. Where it returns `NotImplemented`, or has no
        parameter for what was given, the next patch is asked, and at last the original is called.
    why: the error that it cures, in the words that people search for. link: an issue about it.
    when: the exporters, versions, calls and classes for which it acts, as `When`; under every exporter unless given.
    proof: a case that fails without the patch; see `Proof`.
    options: keywords of `patched(...)` that the stand-in reads, in `running_model().settings.options`.
    deprecated: what `when` has now (requires, exporters, accepts, calls, bodies, subclasses, by_name), and opset and
        replaces. They warn.

    Raises TypeError for a target that is not a dotted path, DuplicatePatchError for a name that is taken.
    """
    when, replaces = joined(when, deprecated)
    check_targets(targets, when)
    if not targets:
        raise TypeError("a patch needs at least one target, a dotted path such as 'package.module.Class'")

    def declare(stand_in: StandIn) -> StandIn:
        # The target alone would give two stand-ins of one function the same name.
        default = f"{targets[0].rpartition('.')[2]}.{getattr(stand_in, '__name__', 'stand_in')}"
        registry.register(Patch(name or default, targets, stand_in, why, link, when, proof, options, replaces))
        return stand_in

    return declare


def check_targets(targets: tuple[str, ...], when: When) -> None:
    """Raises TypeError for a target that is not a dotted path, and for "torch.*" without `calls`."""
    for target in targets:
        if not isinstance(target, str) or "." not in target:
            raise TypeError(f"patch target {target!r} is not a dotted path such as 'package.module.Class'")
    if ANY_TORCH_FUNCTION in targets and when.calls is None:
        raise TypeError("the target 'torch.*' goes with when=When(calls=...), which says what of it is meant")


# ------------------------------------------------------------------ in the code of a layer
def onnx_forward(method: Method) -> Method:
    """Mark a method that replaces `forward` during export. Inside it, `self.forward(...)` runs the eager forward.

        @onnxpatch.onnx_forward
        def export_forward(self, x): ...

    It takes the same arguments as forward, under the same names. A subclass that overrides `forward` and marks no
    method of its own is exported with its own forward, and the plan says so.
    """
    setattr(method, FORWARD, True)
    return method


def onnx_standin(stand_in: type) -> Callable[[type], type]:
    """Mark a class with the stand-in that is used for it during export: `@onnxpatch.onnx_standin(StandIn)`.

    stand_in: a mixin, whose methods override those of the class; or a subclass of nn.Module: `stand_in(module)` then
        replaces the module, and may have other parameters.
    """

    def mark(cls: type) -> type:
        setattr(cls, STAND_IN, stand_in)
        return cls

    return mark


def keep(target: Kept) -> Kept:
    """Leave a module, or all modules of a class, out of patching: they and their submodules are exported unpatched.

    target: a module, or a class of modules (`@onnxpatch.keep`). Returns it.
    """
    if isinstance(target, torch.nn.Module):
        vars(target)[KEEP] = True
    else:
        setattr(target, KEEP, True)
    return target
