"""Why an exporter refused, in one paragraph: the reason underneath, the module it happened in, the user's own line."""

from __future__ import annotations

import re
from typing import Any

import torch

from onnxpatch.errors import OnnxpatchError, error_chain
from onnxpatch.messages.user_code import frames_of, is_user_file, is_user_frame


def explained(error: BaseException, model: Any, exporter: str) -> str:
    """A sentence for ExportError; the whole story stays in the chained exception."""
    chain = error_chain(error)
    # What the kit itself says of a branch or a loop names module, line and remedy; below it is what it made this of.
    root = next((one for one in chain if isinstance(one, OnnxpatchError)), chain[-1])
    reason = re.sub(r"\x1b\[[0-9;]*m", "", " ".join(str(root).split()))[:400]
    message = f"{exporter} export refused {type(model).__name__}: {type(root).__name__}: {reason}"
    where = _where(error, model)
    return f"{message}\n  {where}" if where else message


def _where(error: BaseException, model: Any) -> str:
    """The innermost module of the model that was running, and the innermost line that is not the exporter's."""
    paths = {id(m): name for name, m in model.named_modules()} if isinstance(model, torch.nn.Module) else {}
    module, line = "", ""
    for one in reversed(error_chain(error)):
        for frame, number in frames_of(one):
            owner = frame.f_locals.get("self")
            if id(owner) in paths:
                module = f"in module {paths[id(owner)] or '(root)'} ({type(owner).__name__})"
            if module and is_user_frame(frame):
                line = f"at {frame.f_code.co_filename}:{number} in {frame.f_code.co_name}"
        if module:
            break
    return " ".join(part for part in (module, line) if part) or _translated(error)


def _translated(error: BaseException) -> str:
    """Where the operator was called that the exporter was translating, long after the forward ran."""
    for one in error_chain(error):
        for frame, _ in frames_of(one):
            meta = getattr(frame.f_locals.get("node"), "meta", None)
            trace = meta.get("stack_trace") if isinstance(meta, dict) else None
            calls = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', trace or "")
            own = [call for call in calls if is_user_file(call[0])]
            if own:
                return f"{frame.f_locals['node'].target} at {own[-1][0]}:{own[-1][1]} in {own[-1][2]}"
    return ""
