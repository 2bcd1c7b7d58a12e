"""Make PyTorch models export to ONNX right, at every size and on every branch, without editing their source."""

from onnxpatch._torch import exporting
from onnxpatch.arranging.rearrange import CustomRearrange
from onnxpatch.context import Patched, patch_model, patched
from onnxpatch.diagnosing.diagnosis import Culprit, Diagnosis, Proposal
from onnxpatch.doctor import doctor
from onnxpatch.errors import (
    BranchError,
    DuplicatePatchError,
    ExportError,
    InputError,
    OnnxpatchError,
    RefusedError,
    RestoreError,
    ScriptedModelError,
    UnknownExporterError,
    UnknownPatchError,
    VerificationError,
)
from onnxpatch.export import export
from onnxpatch.loops import each, scan, while_loop
from onnxpatch.optin import keep, onnx_forward, onnx_standin
from onnxpatch.outputs.optional_output import optional_output
from onnxpatch.plan import Plan, plan
from onnxpatch.proof import Proof
from onnxpatch.registry import REGISTRY, Patch, Registry, patch
from onnxpatch.reporting.report import Report
from onnxpatch.session import Session
from onnxpatch.settings import Settings
from onnxpatch.verify import verify

__version__ = "0.1.0"

__all__ = [
    "REGISTRY",
    "BranchError",
    "Culprit",
    "CustomRearrange",
    "Diagnosis",
    "DuplicatePatchError",
    "ExportError",
    "InputError",
    "OnnxpatchError",
    "Patch",
    "Patched",
    "Plan",
    "Proof",
    "Proposal",
    "RefusedError",
    "Registry",
    "Report",
    "RestoreError",
    "ScriptedModelError",
    "Session",
    "Settings",
    "UnknownExporterError",
    "UnknownPatchError",
    "VerificationError",
    "doctor",
    "each",
    "export",
    "exporting",
    "keep",
    "onnx_forward",
    "onnx_standin",
    "optional_output",
    "patch",
    "patch_model",
    "patched",
    "plan",
    "scan",
    "verify",
    "while_loop",
]
