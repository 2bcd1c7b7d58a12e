"""What an ONNX file says of its own making: the kit's version, the patches that acted, a digest of their code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxpatch.onnxfile.metadata import damaged, parsed, short
from onnxpatch.versions import ONNXPATCH

_PREFIX = "onnxpatch."
_NAMED = 40  # patches that a sentence names


@dataclass(frozen=True)
class Provenance:
    """version: of the kit; exporter; plan: rows of path, class and patch; digest: of the code of those patches;
    versions: of the libraries that took part."""

    version: str
    exporter: str
    plan: list[dict[str, Any]]
    digest: str
    versions: dict[str, str]

    def sentence(self) -> str:
        """One line for a report."""
        found = list(dict.fromkeys(row["patch"] for row in self.plan))
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        names = ", ".join(found[:_NAMED]) + more or "no patch"
        return f"the file says: exported by onnxpatch {self.version} ({self.exporter}) with {names}; {self.digest}"


def stamp(
    path: str | os.PathLike[str],
    exporter: str,
    rows: Sequence[dict[str, Any]],
    digest: str,
    versions: dict[str, str],
) -> None:
    """Write the provenance into the metadata of the file at `path`, without reading it.

    A protobuf message that is appended to another one is merged with it: so is this one, whatever the file's size.
    """
    import onnx

    told = {
        "version": ONNXPATCH,
        "exporter": exporter,
        "plan": json.dumps(list(rows)),
        "digest": digest,
        "versions": json.dumps(versions),
    }
    more = onnx.ModelProto()
    for key, value in told.items():
        more.metadata_props.add(key=_PREFIX + key, value=value)
    with open(path, "ab") as file:
        file.write(more.SerializeToString())


def read(proto: Any) -> Provenance | None:
    """The provenance in a loaded ModelProto, or None where it was made without the kit.

    Raises InputError for entries that `stamp` cannot have written.
    """
    kept = {entry.key: entry.value for entry in proto.metadata_props}
    if f"{_PREFIX}version" not in kept:
        return None
    version, exporter, code = (
        short(_PREFIX + name, kept.get(_PREFIX + name, "")) for name in ("version", "exporter", "digest")
    )
    return Provenance(version, exporter, _rows(kept), code, _versions(kept))


def _rows(kept: Mapping[str, str]) -> list[dict[str, Any]]:
    key = f"{_PREFIX}plan"
    rows = parsed(key, kept.get(key) or "[]")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise damaged(key, "it is no list of objects")
    for row in rows:
        if not all(isinstance(row.get(name), str) for name in ("path", "class", "patch")):
            raise damaged(key, "a row is without path, class or patch")
        short(key, row["patch"])
    return rows


def _versions(kept: Mapping[str, str]) -> dict[str, str]:
    key = f"{_PREFIX}versions"
    found = parsed(key, kept.get(key) or "{}")
    if not isinstance(found, dict):
        raise damaged(key, "it is no object")
    return {short(key, name): short(key, version) for name, version in found.items()}
