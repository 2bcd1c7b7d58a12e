"""Why an exporter refused, in one paragraph: the reason underneath, the module it happened in, the user's own line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from onnxpatch.errors import OnnxpatchError

_OURS = ("/torch/", "/onnxscript/", "/onnx_ir/", "/onnxpatch/")


def explained(error: BaseException, model: Any, exporter: str) -> str:
    """A sentence for ExportError; the whole story stays in the chained exception."""
    chain = list(_chain(error))
    # What the kit itself says of a branch or a loop names module, line and remedy; below it is what it made this of.
    root = next((one for one in chain if isinstance(one, OnnxpatchError)), chain[-1])
    reason = re.sub(r"\x1b\[[0-9;]*m", "", " ".join(str(root).split()))[:400]
    told = f"{exporter} export refused {type(model).__name__}: {type(root).__name__}: {reason}"
    where = _where(error, model)
    return f"{told}\n  {where}" if where else told


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _where(error: BaseException, model: Any) -> str:
    """The innermost module of the model that was running, and the innermost line that is not the exporter's."""
    paths = {id(m): name for name, m in model.named_modules()} if isinstance(model, torch.nn.Module) else {}
    module, line = "", ""
    for one in reversed(list(_chain(error))):
        for frame, number in _frames(one):
            owner = frame.f_locals.get("self")
            if id(owner) in paths:
                module = f"in module {paths[id(owner)] or '(root)'} ({type(owner).__name__})"
            if not any(part in frame.f_code.co_filename for part in _OURS) and module:
                line = f"at {frame.f_code.co_filename}:{number} in {frame.f_code.co_name}"
        if module:
            break
    return " ".join(part for part in (module, line) if part) or _translated(error)


def _translated(error: BaseException) -> str:
    """Where the operator was called that the exporter was translating, long after the forward ran."""
    for one in _chain(error):
        for frame, _ in _frames(one):
            meta = getattr(frame.f_locals.get("node"), "meta", None)
            trace = meta.get("stack_trace") if isinstance(meta, dict) else None
            calls = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', trace or "")
            own = [call for call in calls if not any(part in call[0] for part in _OURS)]
            if own:
                return f"{frame.f_locals['node'].target} at {own[-1][0]}:{own[-1][1]} in {own[-1][2]}"
    return ""


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    at = error.__traceback__
    while at is not None:
        yield at.tb_frame, at.tb_lineno
        at = at.tb_next
