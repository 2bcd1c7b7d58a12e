"""`Plan`: what patching would change in a model, by which patch and why. It is made without touching the model.

A patch that matches a module and is not applied is listed as a near miss, with the reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

import torch

from onnxpatch.errors import InputError, RefusedError, ScriptedModelError, UnknownPatchError
from onnxpatch.inputs.modules import modules
from onnxpatch.inputs.validate import check_opset, refuse_no_module
from onnxpatch.messages.text import one_line, plural, table
from onnxpatch.patching.code_places import likely_of
from onnxpatch.patching.generated import class_before, mixins_of
from onnxpatch.patching.match import FunctionPatch, candidates_by_class, raise_if_ambiguous, ties, usable_functions
from onnxpatch.patching.registry import KEEP, REGISTRY, Patch, Registry
from onnxpatch.patching.when import listed_selectors, misspelled
from onnxpatch.results.report import fragment
from onnxpatch.settings import BRANCH_OPTIONS, Settings, make_settings

_MOST_NAMED = 4  # patches in one line


@dataclass
class Swap:
    """One patch on one module. path: of the module. attributes: set on the instance while it is patched."""

    path: str
    module: torch.nn.Module
    patch: Patch
    attributes: dict[str, Any] = field(default_factory=dict)
    aliases: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class NearMiss:
    """A patch that matches and is not applied. path: the module's; None for a patch of functions. reason: why not."""

    path: str | None
    patch: str
    reason: str


@dataclass(repr=False)
class Plan:
    """What `patched(model)` will do. `print(plan)` is a table.

    swaps: one for each module whose class is exchanged, parents before children.
    functions: patches of functions of torch and other libraries. They act where the model calls these while it is
        exported.
    near_misses: patches that match and are not applied, with reasons.
    findings: other things worth a line.
    """

    model: torch.nn.Module
    settings: Settings
    swaps: list[Swap] = field(default_factory=list)
    functions: list[FunctionPatch] = field(default_factory=list)
    near_misses: list[NearMiss] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    paths: dict[int, str] = field(default_factory=dict)
    classes: set[type] = field(default_factory=set)
    kept: list[torch.nn.Module] = field(default_factory=list)
    modes: list[tuple[torch.nn.Module, bool]] = field(default_factory=list)

    def patches(self) -> list[Patch]:
        """The patches that are swapped in or can act during export, each once."""
        applied = [swap.patch for swap in self.swaps] + [patch for patch, _ in self.functions]
        return list({patch.name: patch for patch in applied}.values())

    def watching(self) -> str:
        """One line for the function patches: those of functions that the model's code names."""
        names = list(self.likely())
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        listed = f": {', '.join(names[:_MOST_NAMED])}{more} (`onnxpatch list`)" if names else ""
        return one_line(f"{self._can_act(len(names))}{listed}")

    def likely(self) -> dict[str, tuple[str, str]]:
        """The function patches whose function the model's code names: patch -> (function, where)."""
        functions = {patch.name: [target for target, _ in found] for patch, found in self.functions}
        return likely_of(functions, self.classes)

    def _can_act(self, named: int) -> str:
        return f"{named} of {len(self.functions)} function patches fit what its code names"

    def headline(self) -> str:
        """One line: how many modules are swapped, and how many function patches can act."""
        swapped = plural(len({swap.path for swap in self.swaps}), "module")
        return f"{type(self.model).__name__}: {swapped} swapped, {self._can_act(len(self.likely()))}"

    def __repr__(self) -> str:
        return f"<Plan {one_line(self.headline())}>"

    def _repr_html_(self) -> str:
        rows = [(s.path or "(root)", type(s.module).__name__, s.patch.name, s.patch.why) for s in self.swaps]
        rows += [("" if m.path is None else m.path or "(root)", "", m.patch, m.reason) for m in self.near_misses]
        header = ("module", "class", "patch", "why, or why not")
        caption = "modules that are swapped, and those that a patch matches but leaves alone"
        return fragment(self.headline(), "", header, rows, [*self.findings, self.watching()], caption, opened=True)

    def __str__(self) -> str:
        rows = [(s.path or "(root)", type(s.module).__name__, s.patch.name, s.patch.why) for s in self.swaps]
        parts = [table(("module", "class", "patch", "why"), rows) if rows else "No module is swapped."]
        if self.functions:
            parts.append(self.watching())
        if self.near_misses:
            missed = [("" if m.path is None else m.path or "(root)", m.patch, m.reason) for m in self.near_misses]
            parts.append(table(("not swapped", "patch", "reason"), missed))
        return "\n\n".join([*parts, *map(one_line, self.findings)])


def plan(
    model: torch.nn.Module,
    *,
    only: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    settings: Settings | None = None,
    registry: Registry = REGISTRY,
    **options: Any,
) -> Plan:
    """Return the `Plan` of what `patched(model, ...)` would do. The model is not changed.

    only, exclude: names of patches or paths of modules, `*` allowed. only: just these are applied; exclude: all others.
    settings, options: as in `patched`. The options are the fields of `Settings` by keyword.
    registry: the patches to choose from.

    Raises UnknownPatchError for a name that fits nothing, InputError for an option that no patch declares,
    ScriptedModelError for a ScriptModule.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise ScriptedModelError(
            f"the model is a {type(model).__name__} already, and its code can no longer be swapped: "
            "pass the nn.Module and call torch.jit.script inside patched(...)"
        )
    refuse_no_module(model)
    if not isinstance(registry, Registry):
        raise InputError(f"registry must be an onnxpatch.Registry, not {type(registry).__name__}: leave it out for all")
    settings = settings or make_settings(**options)
    if settings.opset is not None:
        check_opset(settings.opset)
    _check_options(settings, registry)
    made = Plan(model, settings)
    _Planner(made, registry, _Selection(only, exclude)).run()
    return made


def _check_options(settings: Settings, registry: Registry) -> None:
    if not settings.options:
        return
    declared = {*BRANCH_OPTIONS, *(name for patch in registry for name in patch.options)}
    for name in settings.options:
        if name not in declared:
            known = sorted(
                {*declared, *(each.name for each in fields(Settings)), "only", "exclude", "example"} - {"options"}
            )
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise InputError(f"{name}= is an option of no patch: {hint}")


class _Selection:
    """What `only` and `exclude` allow. A module path includes its submodules."""

    def __init__(self, only: str | Iterable[str] | None = None, exclude: str | Iterable[str] | None = None) -> None:
        self.only = None if only is None else listed_selectors(only)
        self.exclude = listed_selectors(exclude)
        self.admits_all = self.only is None and not self.exclude

    def admits(self, patch: str, path: str | None) -> bool:
        """Whether `patch` may act on the module at `path`. path None: a patch of functions."""
        if any(_fits(selector, patch, path) for selector in self.exclude):
            return False
        return self.only is None or any(_fits(selector, patch, path) for selector in self.only)

    def check(self, patches: Iterable[str], paths: Iterable[str]) -> None:
        """Raises UnknownPatchError for a selector that names neither a patch nor a module path."""
        selectors = (*(self.only or ()), *self.exclude)
        if not selectors:
            return
        names, places = list(patches), list(paths)
        for selector in selectors:
            if not any(fnmatchcase(name, selector) for name in (*names, *places)):
                # All names would be more than a hundred.
                near = difflib.get_close_matches(selector.strip("*."), [*names, *places], n=3, cutoff=0.5)
                known = f"did you mean {' or '.join(map(repr, near))}?"
                hint = known if near else "`onnxpatch list` shows the patches, print(model) the modules"
                raise UnknownPatchError(f"{selector!r} is neither a patch nor a module path of this model; {hint}")


def _fits(selector: str, patch: str, path: str | None) -> bool:
    if fnmatchcase(patch, selector):
        return True
    return path is not None and (fnmatchcase(path, selector) or fnmatchcase(path, f"{selector}.*"))


class _Planner:
    def __init__(self, made: Plan, registry: Registry, selection: _Selection) -> None:
        self.plan = made
        self.registry = registry
        self.selection = selection
        self.candidates = candidates_by_class(registry, made.settings)
        self.by_module: dict[int, list[Swap]] = {}
        self.kept_under: list[str] = []

    def run(self) -> None:
        for path, module in modules(self.plan.model):
            self._visit(path, module)
        self.plan.functions = [
            (patch, found)
            for patch, found in usable_functions(self.registry, self.plan.settings)
            if self.selection.admits_all or self.selection.admits(patch.name, None)
        ]
        self.plan.findings += ties(self.plan.functions)
        self.plan.findings += [
            f"{patch.name} ({patch.declared_at}): there is no {target}"
            for patch in self.registry
            for target in patch.targets
            if not patch.ours and misspelled(target)
        ]
        # Now that the paths of all modules are known.
        self.selection.check((patch.name for patch in self.registry), self.plan.paths.values())
        for name, reason in self.registry.failures.items():
            self.plan.near_misses.append(NearMiss(None, name, f"could not be loaded: {reason}"))

    def _visit(self, path: str, module: torch.nn.Module) -> None:
        key, cls = id(module), type(module)
        # A module that is shared comes again under another path: it is swapped once.
        if key in self.plan.paths:
            for swap in self.by_module.get(key, ()):
                swap.aliases.append(path)
            return
        self.plan.paths[key] = path
        self.plan.classes.add(cls)
        # Noted, since torch.onnx.export may change the flags: `Patched` sets them back.
        self.plan.modes.append((module, module.training))
        if "forward" in module.__dict__:
            self.plan.findings.append(f"{path or '(root)'}: {_own_forward(module)}")
        if KEEP in module.__dict__ or hasattr(cls, KEEP):
            self.plan.kept.append(module)
            self.kept_under.append(path)
        self._plan_module(path, module)

    def _opted_out(self, path: str) -> str | None:
        for above in self.kept_under:
            if path == above:
                return "opted out by keep()"
            # A bare prefix would take `layer10` for a part of `layer1`.
            if not above or path.startswith((f"{above}.", f"{above}[")):
                return f"is under {above or '(root)'}, opted out by keep()"
        return None

    def _plan_module(self, path: str, module: torch.nn.Module) -> None:
        taken: dict[str, Patch] = {}
        candidates = self.candidates(type(module))
        admitted = [each for each in candidates if self.selection.admits(each.patch.name, path)]
        raise_if_ambiguous(class_before(type(module)), admitted)
        for patch, reason, _ in admitted:
            reason = reason or self._opted_out(path) or self._refusal(module, patch, taken)
            if reason is None:
                reason = self._add(path, module, patch, taken)
            if reason is not None:
                self.plan.near_misses.append(NearMiss(path, patch.name, reason))

    def _refusal(self, module: torch.nn.Module, patch: Patch, taken: dict[str, Patch]) -> str | None:
        if any(issubclass(mixin, patch.stand_in) for mixin in mixins_of(type(module)) if patch.kind == "class"):
            return "acts already: an outer patched() applied it"
        # Python looks at the instance before any class, generated ones too.
        hidden = patch.methods & vars(module).keys()
        if hidden:
            return f"an instance attribute hides {', '.join(sorted(hidden))}: delete it to have the method swapped"
        for method in sorted(patch.methods & taken.keys()):
            return f"{taken[method].name} stands in for {method} already"
        accepts = patch.when.accepts
        return accepts(module, self.plan.settings) if accepts else None

    def _add(self, path: str, module: torch.nn.Module, patch: Patch, taken: dict[str, Patch]) -> str | None:
        prepare = getattr(patch.stand_in, "onnxpatch_prepare", None)
        try:
            attributes = dict(prepare(module, self.plan.settings)) if prepare else {}
        # Only from the instance may a patch find that it is not for it.
        except RefusedError as refused:
            return str(refused)
        swap = Swap(path, module, patch, attributes)
        self.plan.swaps.append(swap)
        self.by_module.setdefault(id(module), []).append(swap)
        taken.update(dict.fromkeys(patch.methods, patch))
        return None


def _own_forward(module: torch.nn.Module) -> str:
    if isinstance(module, torch.jit.ScriptModule):
        return "is a ScriptModule already: nothing in it can be swapped"
    return (
        "an instance attribute `forward` hides the class's method (left by another patcher or a hook?); "
        "it stays as it is"
    )
