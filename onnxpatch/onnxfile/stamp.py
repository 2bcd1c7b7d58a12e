"""The provenance of an ONNX file in its metadata: onnxpatch's version, the patches that acted, a digest of their code.

The entries are `onnxpatch.version`, `.exporter`, `.plan` (JSON), `.digest`, `.versions` (JSON), `.call`, the call of
`onnxpatch.export` that makes the file again, and `.untried` (JSON): sides of the model's conditions that never ran.
onnxruntime shows them in `session.get_modelmeta().custom_metadata_map`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from onnxpatch.onnxfile.metadata import Json, damaged, parse_json, short_string
from onnxpatch.versions import ONNXPATCH

if TYPE_CHECKING:
    from onnx import ModelProto

_PREFIX = "onnxpatch."
CALL = f"{_PREFIX}call"
UNTRIED = f"{_PREFIX}untried"
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
    versions: dict[str, str],
    call: str = "",
    more: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the provenance into the metadata of the file at `path`, without reading the file.

    rows, digest, versions, call: as in `Provenance`. more: further entries, with their whole keys.
    """
    entries = {
        "version": ONNXPATCH,
        "exporter": exporter,
        "plan": json.dumps([dict(row) for row in rows]),
        "digest": digest,
        "versions": json.dumps(versions),
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

    Raises InputError for entries that `stamp` cannot have written.
    """
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    if f"{_PREFIX}version" not in metadata:
        return None
    version, exporter, digest = (
        short_string(_PREFIX + name, metadata.get(_PREFIX + name, "")) for name in ("version", "exporter", "digest")
    )
    call = short_string(CALL, metadata.get(CALL, ""), _MOST_CALL)
    return Provenance(version, exporter, _plan_rows(metadata), digest, _versions(metadata), call)


def _plan_rows(metadata: Mapping[str, str]) -> list[dict[str, Json]]:
    key = f"{_PREFIX}plan"
    rows = parse_json(key, metadata.get(key) or "[]")
    if not isinstance(rows, list):
        raise damaged(key, "it is not a list of objects")
    return [_checked_row(key, row) for row in rows]


def _checked_row(key: str, row: Json) -> dict[str, Json]:
    if not isinstance(row, dict):
        raise damaged(key, "it is not a list of objects")
    if not all(isinstance(row.get(name), str) for name in ("path", "class", "patch")):
        raise damaged(key, "a row has no path, class or patch")
    short_string(key, row["patch"])
    return row


def _versions(metadata: Mapping[str, str]) -> dict[str, str]:
    key = f"{_PREFIX}versions"
    versions = parse_json(key, metadata.get(key) or "{}")
    if not isinstance(versions, dict):
        raise damaged(key, "it is not an object")
    return {short_string(key, name): short_string(key, version) for name, version in versions.items()}
