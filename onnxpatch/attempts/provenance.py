"""How a file was made, written into it: which patches acted, a digest of their code, the call that makes it again."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Iterable
from typing import Any

from onnxpatch.exporters.exported import Exported
from onnxpatch.onnxfile import call_inputs
from onnxpatch.onnxfile.stamp import stamp
from onnxpatch.patched import Patched
from onnxpatch.patching.registry import Patch
from onnxpatch.versions import versions


def stamped(exported: Exported, patched: Patched, call: str) -> list[dict[str, Any]]:
    """Stamp the file. Returns the rows of the patches that acted: path, class and patch."""
    rows = _plan_rows(patched)
    acted = {row["patch"] for row in rows}
    code = digest(patch for patch in patched.plan.patches() if patch.name in acted)
    request = exported.request
    stamp(exported.path, request.exporter, rows, code, versions(), call, call_inputs.entry(request.call_names()))
    return rows


def _plan_rows(patched: Patched) -> list[dict[str, Any]]:
    made, acted = patched.plan, patched.scope.hits
    rows = [{"path": s.path, "class": type(s.module).__name__, "patch": s.patch.name} for s in made.swaps]
    functions = [p for p, _ in made.functions if acted[p.name]]  # those that only watched changed nothing
    return rows + [{"path": ", ".join(p.targets), "class": "function", "patch": p.name} for p in functions]


def digest(patches: Iterable[Patch]) -> str:
    """A digest of the code of patches: `sha256:` and 16 hex digits over their names and source, in any order."""
    # Sorted, since patches are loaded in the order of files and plug-ins.
    sources = sorted((patch.name, _source(patch)) for patch in patches)
    return f"sha256:{hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16]}"


def _source(patch: Patch) -> str:
    return _written(inspect.unwrap(patch.stand_in)) or patch.declared_at  # the latter if typed into an interpreter


@functools.lru_cache(maxsize=512)  # reading source takes longer than a small file's stamp
def _written(stand_in: Any) -> str | None:
    try:
        return inspect.getsource(stand_in)
    except (OSError, TypeError):
        return None
