"""A short digest of the code of patches, for the metadata of the files they took part in."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable

from onnxpatch.patching.registry import Patch


def digest(patches: Iterable[Patch]) -> str:
    """`sha256:` and 16 hex digits over names and source of the patches, whatever their order."""
    told = sorted((patch.name, _source(patch)) for patch in patches)
    return f"sha256:{hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]}"


def _source(patch: Patch) -> str:
    try:
        return inspect.getsource(inspect.unwrap(patch.stand_in))
    except (OSError, TypeError):  # typed into an interpreter
        return patch.declared_at
