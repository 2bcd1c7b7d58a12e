"""What an ONNX file says of its own making: the kit's version, the patches that acted, a digest of their code."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onnxpatch.versions import ONNXPATCH

_PREFIX = "onnxpatch."


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
        names = ", ".join(dict.fromkeys(str(row.get("patch")) for row in self.plan)) or "no patch"
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
    """The provenance in a loaded ModelProto, or None where it was made without the kit."""
    kept = {entry.key: entry.value for entry in proto.metadata_props}
    if f"{_PREFIX}version" not in kept:
        return None
    told = {name: kept.get(_PREFIX + name, "") for name in ("version", "exporter", "plan", "digest", "versions")}
    plan, versions = json.loads(told["plan"] or "[]"), json.loads(told["versions"] or "{}")
    return Provenance(told["version"], told["exporter"], plan, told["digest"], versions)
