"""Make PyTorch models export to ONNX right, at every size and on every branch, without editing their source.

Public names are loaded when they are first asked for (PEP 562): importing the package imports neither torch nor any
room of it.
"""

from __future__ import annotations

import importlib
import logging
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxpatch._torch import exporting
    from onnxpatch.control_flow.optional_outputs import optional_output
    from onnxpatch.doctor import doctor, new_patch
    from onnxpatch.drift import Drift, drift
    from onnxpatch.errors import (
        BranchError,
        DuplicatePatchError,
        ExportError,
        InputError,
        OnnxpatchError,
        RefusedError,
        RestoreError,
        RunError,
        ScriptedModelError,
        UnknownExporterError,
        UnknownPatchError,
        VerificationError,
    )
    from onnxpatch.export import export
    from onnxpatch.formulas.einops.rearrange import CustomRearrange
    from onnxpatch.generation.export import export_generation
    from onnxpatch.generation.session import GenerationSession
    from onnxpatch.loops import cond, each, scan, while_loop
    from onnxpatch.onnxfile.metadata import __version__ as __version__
    from onnxpatch.onnxfile.runtimes.interface import Runtime
    from onnxpatch.patched import Patched, patch_model, patched
    from onnxpatch.patching.fingerprints import KnownBody
    from onnxpatch.patching.op_rows import missing, op, untraced
    from onnxpatch.patching.plan import Plan, plan
    from onnxpatch.patching.proof import Proof
    from onnxpatch.patching.registry import REGISTRY, Patch, Registry, keep, onnx_forward, onnx_standin, patch
    from onnxpatch.patching.runtime import running_model
    from onnxpatch.patching.when import When
    from onnxpatch.results.diagnosis import Culprit, Diagnosis, Proposal
    from onnxpatch.results.report import Report
    from onnxpatch.session import Session
    from onnxpatch.settings import Settings
    from onnxpatch.verify import verify

logging.getLogger("onnxpatch").addHandler(logging.NullHandler())  # what it logs is for those who ask

_HOMES = {
    "_torch": ("exporting",),
    "control_flow.optional_outputs": ("optional_output",),
    "doctor": ("doctor", "new_patch"),
    "drift": ("Drift", "drift"),
    "errors": (
        "BranchError",
        "DuplicatePatchError",
        "ExportError",
        "InputError",
        "OnnxpatchError",
        "RefusedError",
        "RestoreError",
        "RunError",
        "ScriptedModelError",
        "UnknownExporterError",
        "UnknownPatchError",
        "VerificationError",
    ),
    "export": ("export",),
    "formulas.einops.rearrange": ("CustomRearrange",),
    "generation.export": ("export_generation",),
    "generation.session": ("GenerationSession",),
    "onnxfile.metadata": ("__version__",),
    "onnxfile.runtimes.interface": ("Runtime",),
    "loops": ("cond", "each", "scan", "while_loop"),
    "patched": ("Patched", "patch_model", "patched"),
    "patching.fingerprints": ("KnownBody",),
    "patching.op_rows": ("missing", "op", "untraced"),
    "patching.plan": ("Plan", "plan"),
    "patching.proof": ("Proof",),
    "patching.registry": ("REGISTRY", "Patch", "Registry", "keep", "onnx_forward", "onnx_standin", "patch"),
    "patching.runtime": ("running_model",),
    "patching.when": ("When",),
    "results.diagnosis": ("Culprit", "Diagnosis", "Proposal"),
    "results.report": ("Report",),
    "session": ("Session",),
    "settings": ("Settings",),
    "verify": ("verify",),
}
_HOME = {name: f"onnxpatch.{module}" for module, names in _HOMES.items() for name in names}

__all__ = [
    "REGISTRY", "BranchError", "Culprit", "CustomRearrange", "Diagnosis", "Drift", "DuplicatePatchError", "ExportError",
    "GenerationSession", "InputError", "KnownBody", "OnnxpatchError", "Patch", "Patched", "Plan", "Proof", "Proposal",
    "RefusedError", "Registry", "Report", "RestoreError", "RunError", "Runtime", "ScriptedModelError", "Session",
    "Settings", "UnknownExporterError", "UnknownPatchError", "VerificationError", "When", "cond", "doctor", "drift",
    "each", "export", "export_generation", "exporting", "keep", "missing", "new_patch", "onnx_forward", "onnx_standin",
    "op", "optional_output", "patch", "patch_model", "patched", "plan", "running_model", "scan", "untraced", "verify",
    "while_loop",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'onnxpatch' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    # Python asks this function only for names that the module does not have: the next access does without it.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(types.ModuleType):
    """`onnxpatch.export` is the function, although there is a module of that name: the import system, which sets a
    package's attribute to each submodule that it loads, is not allowed to hide a public name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, types.ModuleType) and name in _HOME):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
