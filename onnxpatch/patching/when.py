"""`When`: under which exporters, versions and calls, and for which classes, a patch acts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import torch
from packaging.requirements import Requirement  # comes with onnxscript

from onnxpatch.patching.fingerprints import Bodies
from onnxpatch.settings import EXPORTERS, Exporter, Settings

Calls = Callable[[Any, tuple[Any, ...], dict[str, Any]], bool]
Accepts = Callable[[torch.nn.Module, Settings], "str | None"]


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


_requirement = functools.lru_cache(maxsize=512)(Requirement)  # parsed once, not for every plan


@dataclass(frozen=True)
class When:
    """When a patch acts. All that is given must hold.

    exporters: under which it applies. A stand-in is called only while one of them runs.
    requires: PEP 508 requirement strings, all of which must be met ("einops>=0.7", "torch>=2.8").
    calls: says by (function, args, kwargs) which calls of the functions the stand-in takes over, as they were written;
        with the target "torch.*", of every function of torch. Patches of every call of a function go before.
    accepts: called with an instance of a target class and the settings; None to accept it, or why it is refused.
    bodies: fingerprints (`onnxpatch.KnownBody`) by method name. A target whose methods have another source is not
        patched, and the plan says so. A copy of the class elsewhere, with all of these methods, is a target too.
    subclasses: for instances of subclasses of a target, too.
    by_name: a torch function is replaced by name in the modules that import it, not in torch's dispatch. For arguments
        that torch refuses before a TorchFunctionMode sees the call.
    """

    exporters: tuple[Exporter, ...] = EXPORTERS
    requires: tuple[str, ...] = ()
    calls: Calls | None = None
    accepts: Accepts | None = None
    bodies: Bodies = field(default_factory=dict)
    subclasses: bool = False
    by_name: bool = False
    opset: tuple[int | None, int | None] = field(default=(None, None), repr=False)  # goes with `patch(opset=)`

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
