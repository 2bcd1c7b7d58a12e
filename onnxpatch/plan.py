"""`plan`: what `patched` would change in a model, without changing it."""

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
    """Return the `Plan` of what `patched(model, ...)` would do. The model is not changed.

    only, exclude: names of patches or paths of modules, `*` allowed. only: just these are applied; exclude: all others.
    settings, options: as in `patched`. The options are the fields of `Settings` by keyword.
    registry: the patches to choose from.

    Raises UnknownPatchError for a name that fits nothing, ScriptedModelError for a ScriptModule.
    """
    return make_plan(model, only=only, exclude=exclude, settings=settings, registry=registry, **options)
