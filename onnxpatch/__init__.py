"""Make PyTorch models export to ONNX right, at every size and on every branch, without editing their source."""

from onnxpatch._torch import exporting
from onnxpatch.context import Patched, patch_model, patched
from onnxpatch.errors import (
    BranchError,
    DuplicatePatchError,
    OnnxpatchError,
    RefusedError,
    RestoreError,
    ScriptedModelError,
    UnknownExporterError,
    UnknownPatchError,
)
from onnxpatch.optin import keep, onnx_forward, onnx_standin
from onnxpatch.plan import Plan, plan
from onnxpatch.proof import Proof
from onnxpatch.registry import REGISTRY, Patch, Registry, patch
from onnxpatch.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "REGISTRY",
    "BranchError",
    "DuplicatePatchError",
    "OnnxpatchError",
    "Patch",
    "Patched",
    "Plan",
    "Proof",
    "RefusedError",
    "Registry",
    "RestoreError",
    "ScriptedModelError",
    "Settings",
    "UnknownExporterError",
    "UnknownPatchError",
    "exporting",
    "keep",
    "onnx_forward",
    "onnx_standin",
    "patch",
    "patch_model",
    "patched",
    "plan",
]
