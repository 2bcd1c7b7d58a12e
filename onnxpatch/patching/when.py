"""When a patch acts: its `When` holds, its target is loaded, and `only=` and `exclude=` admit it.

A target is a dotted path. It is looked up in modules that are loaded already; nothing is imported.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

import torch
from packaging.requirements import Requirement  # comes with onnxscript

from onnxpatch._torch.function_modes import function_name
from onnxpatch.errors import InputError
from onnxpatch.patching.fingerprints import Bodies
from onnxpatch.settings import EXPORTERS, Exporter, Settings

ANY_TORCH_FUNCTION = "torch.*"
EXPORT_QUESTIONS = (
    "torch.onnx.is_in_onnx_export", "torch.jit.is_tracing", "torch.compiler.is_exporting",
    "torch.compiler.is_compiling", "torch.compiler.is_dynamo_compiling",
)  # fmt: skip
"""How a model's code asks whether it is exported."""
_MISSING = object()
_JOINED = ("exporters", "requires", "calls", "accepts", "bodies", "subclasses", "by_name")
_GONE = {
    "opset": "a stand-in can read running_model().settings.opset, and return NotImplemented",
    "replaces": "give the class its stand-in: onnxpatch.onnx_standin(StandIn)(Class)",
}
Calls = Callable[[Any, tuple[Any, ...], dict[str, Any]], bool]
Accepts = Callable[[torch.nn.Module, Settings], "str | None"]
# Functions that make a complex tensor out of real ones.
_COMPLEX = frozenset(("view_as_complex", "complex", "polar", "cfloat", "cdouble"))
_requirement = functools.lru_cache(maxsize=512)(Requirement)  # parsed once, not for every plan


def misspelled(path: str) -> bool:
    """Whether the library of a dotted path is loaded and has nothing there.

    False for a module that is not loaded yet, or that loads its names lazily: it may have the name later.
    """
    parts = path.split(".")
    # "*.Name" fits classes of any module, so that nothing says it is wrong.
    if path == ANY_TORCH_FUNCTION or parts[0] == "*" or resolve(path) is not None:
        return False
    for cut in range(len(parts) - 1, 0, -1):
        home = sys.modules.get(".".join(parts[:cut]))
        if home is not None:
            # transformers and others import a name when it is first asked for.
            lazy = type(home) is not types.ModuleType or hasattr(home, "__getattr__")
            return not lazy and not _is_module(".".join(parts[: cut + 1]))
    return False


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def loaded(targets: Iterable[Iterable[str]]) -> list[list[tuple[str, Any]]]:
    """For each group of dotted paths: (path, object) of those whose library is loaded. A static method is given as its
    function."""
    return [[(path, _plain(one)) for path in paths if (one := resolve(path)) is not None] for paths in targets]


def _plain(found: object) -> Any:
    return found.__func__ if isinstance(found, staticmethod) else found


def resolve(path: str) -> Any | None:
    """The object at a dotted path, or None if its library is not loaded. Neither imports nor triggers lazy loading."""
    if path == ANY_TORCH_FUNCTION:
        return path
    parts = path.split(".")
    # The longest module path first: after a module, the rest of the path are names in it.
    for cut in range(len(parts) - 1, 0, -1):
        home = sys.modules.get(".".join(parts[:cut]))
        if home is None:
            continue
        found: Any = home
        for part in parts[cut:]:
            # getattr would run a lazy module's `__getattr__`, which imports.
            if type(found) is types.ModuleType:  # every plan asks for hundreds of functions
                found = vars(found).get(part, _MISSING)
            elif part == "__set__":  # of a property: bound to it
                found = getattr(found, part)
            elif isinstance(found, type):  # as inspect.getattr_static, in a third of its time
                found = next((vars(base)[part] for base in found.__mro__ if part in vars(base)), _MISSING)
            elif found is not _MISSING:
                found = inspect.getattr_static(found, part, _MISSING)
        return _number_method(path) if found is _MISSING else found
    return None


@functools.cache
def _number_method(path: str) -> Any | None:
    """What stands for a method of Python's numbers that torch's lack, such as `torch.Tensor.is_integer`.

    Under trace a size is a tensor: a patch may give it the method while the model runs. Under dynamo a condition on
    sizes has `&` and `|`, and no `^`.
    """
    owner, _, name = path.rpartition(".")
    kinds = {"torch.Tensor": (float, int), "torch.SymBool": (bool,)}.get(owner, ())
    if not any(callable(getattr(kind, name, None)) for kind in kinds):
        return None

    def missing(tensor: object, *args: object, **kwargs: object) -> Any:
        if name.startswith("__"):  # an operator: Python says which operands it does not take
            return NotImplemented
        raise AttributeError(f"{type(tensor).__name__!r} object has no attribute {name!r}")

    missing.__name__ = name
    return missing


def listed_selectors(selectors: str | Iterable[str] | None) -> tuple[str, ...]:
    """What `only` or `exclude` names. Raises InputError for what is no name."""
    if selectors is None:
        return ()
    listed = (selectors,) if isinstance(selectors, str) or not isinstance(selectors, Iterable) else tuple(selectors)
    if odd := [one for one in listed if not isinstance(one, str)]:
        raise InputError(f"only= and exclude= take names of patches and paths of modules, not {odd[0]!r}")
    return listed


# metadata.version opens files, for every patch of every plan; what is installed stays as it is in a process.
@functools.cache
def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, or None. torch is asked itself: its local builds report more."""
    if distribution == "torch":
        return str(torch.__version__)
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class When:
    """When a patch acts. Every condition that is given must hold.

        when = onnxpatch.When(exporters=("trace",), requires=("timm>=1.0",))

    exporters: those under which it acts, all unless given. A stand-in is called only while one of them runs.
    requires: PEP 508 requirement strings, all of which must be met ("einops>=0.7", "torch>=2.8").
    calls: for functions: called with (function, args, kwargs) of a call as it was written, returns whether the stand-in
        takes it over. With the target "torch.*" it is asked about every function of torch. Patches without `calls` are
        asked first.
    plain: for functions: whether it has to do with plain calls, those of real tensors with axes and of numbers. With
        False it is asked where a size, a tensor of shape (), a string or what is complex is given, or where the
        function makes a complex tensor.
    accepts: for classes: called with (module, settings), returns None, or why the module is not patched.
    bodies: for classes that the stand-in was written for: fingerprints (`onnxpatch.KnownBody`) by method name. A target
        whose methods have another source is not patched, and the plan says so. A copy of the class elsewhere, with all
        of these methods, is a target too.
    subclasses: whether instances of subclasses of a target are patched, too.
    by_name: replace a torch function by name in the modules that import it, not in torch's dispatch. For arguments that
        torch refuses before a TorchFunctionMode sees the call.
    """

    exporters: tuple[Exporter, ...] = EXPORTERS
    requires: tuple[str, ...] = ()
    calls: Calls | None = None
    accepts: Accepts | None = None
    bodies: Bodies = field(default_factory=dict)
    subclasses: bool = False
    by_name: bool = False
    opset: tuple[int | None, int | None] = field(default=(None, None), repr=False)  # goes with `patch(opset=)`
    plain: bool = True

    def refusal(self, settings: Settings) -> str | None:
        """The reason why the patch does not apply under `settings`, as the plan shows it; None if it applies."""
        return self._version_refusal() or self._exporter_refusal(settings) or self._opset_refusal(settings)

    def _version_refusal(self) -> str | None:
        for text in self.requires:
            requirement = _requirement(text)
            version = installed_version(requirement.name)
            if version is None:
                return f"needs {text}, which is not installed"
            # Nightly builds of torch are prereleases, and would meet no requirement otherwise.
            if not requirement.specifier.contains(version, prereleases=True):
                return f"needs {text}, found {version}"
        return None

    def _exporter_refusal(self, settings: Settings) -> str | None:
        if settings.exporter is None or settings.exporter in self.exporters:
            return None
        return f"only for exporter={' or '.join(map(repr, self.exporters))}"

    def _opset_refusal(self, settings: Settings) -> str | None:
        lowest, highest = self.opset
        if settings.opset is None:
            return None
        if lowest is not None and settings.opset < lowest:
            return f"needs opset {lowest} or later, not {settings.opset}"
        if highest is not None and settings.opset > highest:
            return f"works up to opset {highest}, not {settings.opset}"
        return None


def joined(when: When | None, given: Mapping[str, Any]) -> tuple[When, bool]:
    """`when` with what is given in the old way, and `replaces`. Raises TypeError for names that patch() never had."""
    if unknown := [name for name in given if name not in _JOINED and name not in _GONE]:
        raise TypeError(f"patch() got an unexpected keyword argument {unknown[0]!r}")
    if moved := [name for name in _JOINED if name in given]:
        _warn(f"patch({', '.join(f'{name}=' for name in moved)}) is deprecated: write when=onnxpatch.When("
              f"{', '.join(f'{name}=...' for name in moved)})")  # fmt: skip
    for name in given:
        if name in _GONE:
            _warn(f"patch({name}=) is deprecated and goes in the next version: {_GONE[name]}")
    named = {name: value for name, value in given.items() if name != "replaces" and value is not None}
    return replace(when or When(), **named), bool(given.get("replaces"))


def _warn(text: str) -> None:
    # 4: the line that calls patch(), past `joined` and `patch`.
    warnings.warn(text, DeprecationWarning, stacklevel=4)


def is_plain_call(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call is plain, as `When.plain` says. Call it with function modes off."""
    return all(map(_is_plain_value, (*args, *kwargs.values()))) and function_name(function) not in _COMPLEX


def _is_plain_value(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dim() > 0 and not value.is_complex()
    if isinstance(value, tuple | list):
        return all(map(_is_plain_value, value))
    return value is None or type(value) in (bool, int, float)
