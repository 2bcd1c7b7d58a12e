"""The JSON Schemas of what `--json` writes, read off the dataclasses and types, so that the two cannot differ."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from typing import Any

from onnxpatch.results import diagnosis
from onnxpatch.results.diagnosis import Diagnosis, Proposal
from onnxpatch.results.report import SCHEMA, Report

_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_UNWRITTEN = {"program"}  # objects that no file holds


def report_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `Report.to_dict()`: what `--json` of `export` and `verify` writes."""
    body = _of(Report)
    body["properties"] |= {"schema": {"const": SCHEMA}, "worst": {"type": ["number", "string", "null"]}}
    body["properties"] |= {"verdict": {"type": "string", "enum": ["right", "wrong", "refused"]}}
    body["required"] += ["schema", "worst", "verdict"]
    return _titled("onnxpatch report", body)


def diagnosis_schema() -> dict[str, Any]:
    """JSON Schema of `Diagnosis.to_dict()`: what `onnxpatch doctor --json` writes."""
    body = _of(Diagnosis)
    body["properties"] |= {"schema": {"const": diagnosis.SCHEMA}, "proposals": _typed(list[Proposal])}
    body["required"] += ["schema", "proposals"]
    return _titled("onnxpatch diagnosis", body)


def schema_of(layout: Any) -> dict[str, Any]:
    """JSON Schema of one of `onnxpatch.cli.json_types`."""
    return _titled(f"onnxpatch {layout.__name__.lower()}", _typed(layout))


def _titled(title: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **body}


def _of(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    names = [one.name for one in dataclasses.fields(cls) if one.name not in _UNWRITTEN]
    properties = {name: _typed(hints[name]) for name in names}
    if hasattr(cls, "ok"):
        properties["ok"] = {"type": "boolean"}
    told = inspect.cleandoc(cls.__doc__ or "")
    return {"type": "object", "description": told, "properties": properties, "required": list(properties)}


def _of_keys(cls: Any) -> dict[str, Any]:
    properties = {name: _typed(kind) for name, kind in typing.get_type_hints(cls).items()}
    told = inspect.cleandoc(cls.__doc__ or "")
    required = [name for name in properties if name in cls.__required_keys__]
    return {"type": "object", "description": told, "properties": properties, "required": required}


def _typed(hint: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(hint):
        return _of(hint)
    if typing.is_typeddict(hint):
        return _of_keys(hint)
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        typed = [_typed(one) for one in inside]
        kinds = [kind for one in typed for kind in (one["type"] if isinstance(one["type"], list) else [one["type"]])]
        return {key: value for one in typed for key, value in one.items()} | {"type": sorted(set(kinds))}
    if origin in (list, tuple):
        return {"type": "array", "items": _typed(inside[0])}
    if origin is dict or hint is dict:
        return {"type": "object", "additionalProperties": _typed(inside[1]) if inside else {}}
    if hint is float:  # JSON has neither NaN (null) nor infinities (a string)
        return {"type": ["number", "string", "null"]}
    return {"type": _PLAIN[hint]} if hint in _PLAIN else {}
