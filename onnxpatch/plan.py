"""`plan`: the dry run of `patched`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from onnxpatch.patching.plan import Plan, make_plan
from onnxpatch.patching.registry import REGISTRY, Registry
from onnxpatch.settings import Settings


def plan(
    model: torch.nn.Module,
    *,
    only: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    settings: Settings | None = None,
    registry: Registry = REGISTRY,
    **options: Any,
) -> Plan:
    """What `patched(model, ...)` would do, without touching the model.

    only, exclude: names of patches or paths of modules, `*` allowed; the others are left alone.
    settings, options: see `patched`; options are those of `Settings` by keyword.

    Raises UnknownPatchError for a name that fits nothing, ScriptedModelError for a ScriptModule.
    """
    return make_plan(model, only=only, exclude=exclude, settings=settings, registry=registry, **options)
