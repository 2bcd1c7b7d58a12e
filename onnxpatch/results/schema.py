"""The JSON Schemas (draft 2020-12) of what `--json` writes, made by pydantic from the dataclasses and types.

The docs publish them, and the tests compare them with what the commands print. They need pydantic, which is not needed
to run onnxpatch: it comes with the extras `docs` and `test`.

What pydantic cannot know is added here: NaN and infinities are written as null and strings, since JSON has neither;
`ok` is a property of several dataclasses and written with their fields; and every field is always there.
"""

from __future__ import annotations

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from onnxpatch.results import diagnosis
from onnxpatch.results.checks import VERDICTS
from onnxpatch.results.diagnosis import Diagnosis, Proposal
from onnxpatch.results.report import SCHEMA, Report

_UNWRITTEN = ("program", "recorded")  # fields that are objects for Python, and no part of the JSON


class _Written(GenerateJsonSchema):
    """Describes what `to_dict` writes, not what a constructor takes."""

    def normalize_name(self, name: str) -> str:
        return super().normalize_name(name).lstrip("_")

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {"type": ["number", "string", "null"]}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_is_required(
        self, field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField, total: bool
    ) -> bool:
        return field.get("required", total) if field["type"] == "typed-dict-field" else True

    def field_title_should_be_set(self, schema: object) -> bool:
        return False  # it would repeat the name of the field

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        written = super().typed_dict_schema(schema)
        return {**written, "title": written["title"].lstrip("_")}

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        written = super().dataclass_schema(schema)
        for name in _UNWRITTEN:
            if written["properties"].pop(name, None) is not None:
                written["required"].remove(name)
        if hasattr(schema["cls"], "ok"):
            _add(written, {"ok": {"type": "boolean"}})
        return written


def report_schema() -> JsonSchemaValue:
    """JSON Schema of `Report.to_dict()`: what `--json` of `export` and `verify` writes. Needs pydantic."""
    worst, verdict = {"type": ["number", "string", "null"]}, {"type": "string", "enum": list(VERDICTS)}
    told: dict[str, JsonSchemaValue] = {"schema": {"const": SCHEMA}, "worst": worst, "verdict": verdict}
    told |= {"covered": {"type": "boolean"}}
    return _add(schema_of(Report, "report"), told)


def diagnosis_schema() -> JsonSchemaValue:
    """JSON Schema of `Diagnosis.to_dict()`: what `onnxpatch doctor --json` writes. Needs pydantic."""
    proposals = {"type": "array", "items": {"$ref": f"#/$defs/{Proposal.__name__}"}}
    schema = schema_of(Diagnosis, "diagnosis")
    return _add(schema, {"schema": {"const": diagnosis.SCHEMA}, "proposals": proposals})


def schema_of(layout: type, name: str) -> JsonSchemaValue:
    """JSON Schema of a dataclass or TypedDict. name: what its title calls it. Needs pydantic."""
    body = TypeAdapter(layout).json_schema(schema_generator=_Written)
    return {"$schema": GenerateJsonSchema.schema_dialect, **body, "title": f"onnxpatch {name}"}


def _add(schema: JsonSchemaValue, properties: dict[str, JsonSchemaValue]) -> JsonSchemaValue:
    """Add properties that are always there, in place."""
    schema["properties"] |= properties
    schema["required"] = [*schema["required"], *properties]
    return schema
