"""A digest of the code of patches, written into the metadata of the files that they changed."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable

from onnxpatch.patching.registry import Patch


def digest(patches: Iterable[Patch]) -> str:
    """`sha256:` and 16 hex digits over the names and source of the patches. Their order does not matter."""
    sources = sorted((patch.name, _source(patch)) for patch in patches)
    return f"sha256:{hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16]}"


def _source(patch: Patch) -> str:
    try:
        return inspect.getsource(inspect.unwrap(patch.stand_in))
    except (OSError, TypeError):  # typed into an interpreter
        return patch.declared_at
