"""Parameters that `patch()` had before `when=`. They work for one version, and say what to write instead."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

from onnxpatch.patching.when import When

_JOINED = ("exporters", "requires", "calls", "accepts", "bodies", "subclasses", "by_name")
_GONE = {
    "opset": "a stand-in can read running_model().settings.opset, and return NotImplemented",
    "replaces": "give the class its stand-in: onnxpatch.onnx_standin(StandIn)(Class)",
}


def joined(when: When | None, given: Mapping[str, Any]) -> tuple[When, bool]:
    """`when` with what is given in the old way, and `replaces`. Raises TypeError for names that patch() never had."""
    if unknown := [name for name in given if name not in _JOINED and name not in _GONE]:
        raise TypeError(f"patch() got an unexpected keyword argument {unknown[0]!r}")
    if moved := [name for name in _JOINED if name in given]:
        _warn(f"patch({', '.join(f'{name}=' for name in moved)}) is deprecated: write when=onnxpatch.When("
              f"{', '.join(f'{name}=...' for name in moved)})")  # fmt: skip
    for name in given:
        if name in _GONE:
            _warn(f"patch({name}=) is deprecated and goes in the next version: {_GONE[name]}")
    named = {name: value for name, value in given.items() if name != "replaces" and value is not None}
    return dataclasses.replace(when or When(), **named), bool(given.get("replaces"))


def _warn(text: str) -> None:
    # 4: the line that calls patch(), past `joined` and `patch`.
    warnings.warn(text, DeprecationWarning, stacklevel=4)
