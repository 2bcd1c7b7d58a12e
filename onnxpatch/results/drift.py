"""`Drift`: what the installed libraries have of the code that patches and the kit rely on, as text and JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from onnxpatch.results.table import table

SCHEMA = 1
Status = Literal["known", "same", "changed", "gone", "unread", "elsewhere", "absent", "new"]


@dataclass(frozen=True)
class Reliance:
    """One thing that is relied on, compared with what is installed.

    name: its dotted path; kind: "method" (a patch knows its code), "target" (a patch stands in for it) or "torch" (a
    private API) or "operator" (of torch's own tests); used_by: the patch, or the file of onnxpatch/_torch.
    status: known (same code, same version as recorded); same (same code in another version); changed; gone (the library
    is installed and has nothing under that name); unread (its module cannot be imported here); absent (the library is
    not installed); elsewhere (this version lacks the target, and the patch has others: patches name the targets of
    several versions); new (an operator that no version known so far has, and no patch stands in for).
    recorded, installed: versions of its library. instead: what happens where it is changed or gone.
    diff: lines of the installed code, "+ " before those that the known code lacks; the known code itself is not kept,
    so what it had in their place is counted: "- 2 lines of the known code".
    """

    name: str
    kind: Literal["method", "target", "torch", "operator"]
    used_by: str
    status: Status
    recorded: str = ""
    installed: str = ""
    instead: str = ""
    diff: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.status not in ("changed", "gone", "unread")


@dataclass(frozen=True)
class Drift:
    """What `drift` compared: each piece of library code and private torch API that is relied on, and what became of it.

    ok: True where nothing changed and nothing is gone."""

    rows: list[Reliance]
    versions: dict[str, str]

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    def acted_upon(self) -> bool:
        """Whether something is gone, or code that a patch knows changed. A private function of torch whose body
        changed is called as before, and may well serve."""
        return any(not row.ok and (row.kind != "torch" or row.status == "gone") for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only; `schema` counts the layout's versions."""
        rows = [{**asdict(row), "ok": row.ok} for row in self.rows]
        return {"schema": SCHEMA, "ok": self.ok, "versions": dict(self.versions), "rows": rows}

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent)

    def __str__(self) -> str:
        counts = Counter(row.status for row in self.rows)
        told = [f"{count} {status}" for status, count in counts.items()]
        shown = [row for row in self.rows if not row.ok or row.status == "new"]
        parts = [f"{len(self.rows)} relied on: {', '.join(told)}"]
        if shown:
            cells = [(row.name, row.used_by, row.status, _versions(row), row.instead) for row in shown]
            parts.append(table(("relied on", "by", "status", "recorded, installed", "what changed"), cells))
        parts += [f"{row.name}:\n" + "\n".join(f"  {line}" for line in row.diff) for row in shown if row.diff]
        return "\n\n".join(parts)


def _versions(row: Reliance) -> str:
    return f"{row.recorded or '?'}, {row.installed or '?'}"
