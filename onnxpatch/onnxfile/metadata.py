"""JSON in the metadata of an ONNX file, which may come from anywhere: sizes are limited, nothing is run.

The key `onnxpatch.inputs` has what a model is called with, since a graph may take less: the TorchScript exporter drops
what nothing reads, and neither exporter has inputs for text; numbers may be constants. It names all in the order of the
call, with the value of what is no tensor:

    [{"name": "x"}, {"name": "flip", "value": true}]

The provenance is `onnxpatch.version`, `.exporter`, `.plan` (JSON: the patches that acted), `.digest` of their code,
`.versions` (JSON), `.call`, the call of `onnxpatch.export` that makes the file again, `.untried` (JSON): sides of the
model's conditions that never ran, and `.wrong_at_zero` (JSON): dimensions of which the model takes size 0 and the file
does not. onnxruntime shows them in `session.get_modelmeta().custom_metadata_map`.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

from onnxpatch.errors import InputError

__version__ = "0.2.0"  # of onnxpatch
_LIBRARIES = ("torch", "onnx", "onnxscript", "onnxruntime", "openvino", "tensorrt", "einops", "transformers", "timm")
# What json.loads returns. In quotes: it refers to itself.
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
_MOST = 4 << 20  # characters; the plan of a model with 10,000 swapped modules takes 1.5 million
_SHORT = 200  # characters of a name, a version or a digest
CALL_KEY = "onnxpatch.inputs"
Constant: TypeAlias = "bool | int | float | str"
_LONGEST = 200  # characters of a name or a text
# By name; None for a tensor.
Call: TypeAlias = "dict[str, Constant | None]"


def parse_json(key: str, text: str) -> Json:
    """The JSON value that `text` is. key: the metadata key, for messages.

    Raises InputError for text that is too long, nested too deep, or not JSON.
    """
    if len(text) > _MOST:
        raise damaged(key, f"it has {len(text)} characters, more than {_MOST}")
    try:
        value: Json = json.loads(text)
        return value
    except RecursionError:
        raise damaged(key, "it is nested too deeply") from None
    except ValueError as error:  # also what Python raises for an integer of thousands of digits
        raise damaged(key, f"it is not JSON ({error})") from None


def parsed_rows(key: str, metadata: Mapping[str, str]) -> list[dict[str, Json]]:
    """The objects in the JSON list under `key`; [] where there is none. Raises InputError for anything else."""
    rows = parse_json(key, metadata[key]) if key in metadata else []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise damaged(key, "it is not a list of objects")
    return cast("list[dict[str, Json]]", rows)


def short_string(key: str, value: object, most: int = _SHORT) -> str:
    """`value` itself, if it is a string of at most `most` characters. Raises InputError if not."""
    if not isinstance(value, str):
        raise damaged(key, f"a {type(value).__name__} was found in place of a string")
    if len(value) > most:
        raise damaged(key, f"a string has {len(value)} characters, more than {most}")
    return value


def damaged(key: str, found: str) -> InputError:
    """The error for metadata that onnxpatch cannot have written. found: what is wrong with it."""
    return InputError(f"the file's metadata {key} is damaged: {found[:_SHORT]}: export the file again")


def call_entry(call: Sequence[tuple[str, object]]) -> dict[str, str]:
    """The metadata for a call: (name, value) of each tensor, number and text. {} where one has no place in it."""
    known = [(name, _constant(value)) for name, value in call]
    if not all(len(name) <= _LONGEST and _fits(value) for name, value in known):
        return {}
    rows = [{"name": name} if value is None else {"name": name, "value": value} for name, value in known]
    return {CALL_KEY: json.dumps(rows)}


def read_call(metadata: Mapping[str, str]) -> Call:
    """The call in a file's metadata; {} for none. Raises InputError for an entry that `call_entry` cannot have made."""
    return dict(map(_checked, parsed_rows(CALL_KEY, metadata)))


def left_out(call: Call, found: dict[str, object], inputs: Sequence[str]) -> dict[str, object]:
    """The values of a call without those that the graph has no input for.

    Raises InputError for a number or a text that is another one than in the file.
    """
    for name, value in found.items():
        constant = call.get(name)
        if name not in inputs and constant is not None and not _same(value, constant):
            given = repr(value) if _constant(value) is not None else f"a {type(value).__name__}"
            raise InputError(f"{name} is {given}, and {constant!r} in this file, where it is a constant: export again")
    return {name: value for name, value in found.items() if name in inputs}


def _same(value: object, constant: Constant) -> bool:
    return _constant(value) is not None and (value == constant or (value != value and constant != constant))


def _constant(value: object) -> Constant | None:
    return value if isinstance(value, bool | int | float | str) else None


def _fits(value: Constant | None) -> bool:
    """Whether a number or text is written and read. Whole numbers have 64 bits: a longer one equals no float."""
    return len(value) <= _LONGEST if isinstance(value, str) else not isinstance(value, int) or abs(value) < 1 << 63


def _checked(row: dict[str, Json]) -> tuple[str, Constant | None]:
    value = row.get("value")
    if value is not None and _constant(value) is None:
        raise damaged(CALL_KEY, "a value is neither a number nor text")
    if not _fits(_constant(value)):
        raise damaged(CALL_KEY, "a value is too long")
    return short_string(CALL_KEY, row.get("name")), _constant(value)


if TYPE_CHECKING:
    from onnx import ModelProto

_PREFIX = "onnxpatch."
CALL = f"{_PREFIX}call"
UNTRIED = f"{_PREFIX}untried"
WRONG_AT_ZERO = f"{_PREFIX}wrong_at_zero"
_MOST_CALL = 4000  # characters of the call
_MOST_NAMES = 40  # patches that the sentence of a report names


@dataclass(frozen=True)
class Provenance:
    """Where a file comes from.

    version: onnxpatch's. exporter: dynamo, trace or script. plan: a row for each patch that acted, with `path`, `class`
    and `patch`. digest: of the code of those patches. versions: of the libraries that took part in the export.
    call: of `onnxpatch.export`, which makes the file again; "" where the file does not say.
    """

    version: str
    exporter: str
    plan: list[dict[str, Json]]
    digest: str
    versions: dict[str, str]
    call: str = ""

    def sentence(self) -> str:
        """One line for a report."""
        patches = list(dict.fromkeys(str(row["patch"]) for row in self.plan))
        more = f" and {len(patches) - _MOST_NAMES} more" if len(patches) > _MOST_NAMES else ""
        names = ", ".join(patches[:_MOST_NAMES]) + more or "no patch"
        call = f"; made by {self.call}" if self.call else ""
        return (
            f"the file says: exported by onnxpatch {self.version} ({self.exporter}) with {names}; {self.digest}{call}"
        )


def stamp(
    path: str | os.PathLike[str],
    exporter: str,
    rows: Sequence[Mapping[str, object]],
    digest: str,
    call: str = "",
    more: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the provenance into the metadata of the file at `path`, without reading the file.

    rows, digest, call: as in `Provenance`. more: further entries, with their whole keys.
    """
    entries = {
        "version": __version__,
        "exporter": exporter,
        "plan": json.dumps([dict(row) for row in rows]),
        "digest": digest,
        "versions": json.dumps(versions()),
        "call": call[:_MOST_CALL],
    }
    append(path, {_PREFIX + key: value for key, value in entries.items()} | dict(more))


def append(path: str | os.PathLike[str], entries: Mapping[str, str]) -> None:
    """Add entries to the metadata of a file, without reading it.

    Bytes of a protobuf message that are appended to another one are merged with it when it is read, so a file of
    gigabytes costs no more than a small one.
    """
    import onnx

    appended = onnx.ModelProto()
    for key, value in entries.items():
        appended.metadata_props.add(key=key, value=value)
    with open(path, "ab") as file:
        file.write(appended.SerializeToString())


def read(proto: ModelProto) -> Provenance | None:
    """The provenance in a loaded model, or None where onnxpatch did not export it.

    Raises InputError for entries that are damaged, or that onnxpatch does not write.
    """
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    if f"{_PREFIX}version" not in metadata:
        return None
    version, exporter, digest = (
        short_string(_PREFIX + name, metadata.get(_PREFIX + name, "")) for name in ("version", "exporter", "digest")
    )
    call = short_string(CALL, metadata.get(CALL, ""), _MOST_CALL)
    plan = parsed_rows(f"{_PREFIX}plan", metadata)
    for row in plan:
        _check_row(f"{_PREFIX}plan", row)
    return Provenance(version, exporter, plan, digest, _versions(metadata), call)


def _check_row(key: str, row: dict[str, Json]) -> None:
    if not all(isinstance(row.get(name), str) for name in ("path", "class", "patch")):
        raise damaged(key, "a row has no path, class or patch")
    short_string(key, row["patch"])


def _versions(metadata: Mapping[str, str]) -> dict[str, str]:
    key = f"{_PREFIX}versions"
    versions = parse_json(key, metadata.get(key) or "{}")
    if not isinstance(versions, dict):
        raise damaged(key, "it is not an object")
    return {short_string(key, name): short_string(key, version) for name, version in versions.items()}


# ------------------------------------------------------------------ versions
def versions() -> dict[str, str]:
    """Name and installed version of each library that takes part in an export. Those not installed are left out."""
    return dict(_installed())


# Reading a distribution's metadata opens files, and what is installed does not change while a process runs.
@functools.cache
def _installed() -> dict[str, str]:
    from importlib import metadata  # here: `--help` has no need of it, and it takes a tenth of its time

    installed: dict[str, str] = {}
    for name in _LIBRARIES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed
