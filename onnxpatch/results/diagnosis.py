"""What the doctor found, as one object: text for a terminal, JSON for tools, Markdown for issues."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from onnxpatch.messages.visible import markdown as escaped
from onnxpatch.messages.visible import one_line
from onnxpatch.settings import Exporter

SCHEMA = 1


@dataclass(frozen=True)
class Proposal:
    """One way out. kind: patch, exporter, branches, export, decorator, rewrite, none.

    name: what to use (patch names, an exporter, a keyword); text: the sentence to act on; tried: True where it was
    carried out on the culprit and came out right, False where it is advice; whole: the same for the whole model.
    """

    kind: str
    name: str
    text: str
    tried: bool = False
    whole: bool | None = None


@dataclass(frozen=True)
class Culprit:
    """The smallest part that fails by itself.

    path: of the module in the model ("" for the model itself), with `.method()` where a method is called directly;
    cls: its class; status: refused, silent (exported without a word, and wrong), slow, patch (a patch did it).
    construct: what it is in the source; source: file:line, code: that line; operator: an aten operator at fault.
    error: the exporter's words, or how far the graph is off. also: other modules of the same class and shapes.
    """

    path: str
    cls: str
    status: str
    exporter: str
    construct: str = ""
    source: str = ""
    code: str = ""
    operator: str = ""
    error: str = ""
    support: str = ""
    also: tuple[str, ...] = ()
    proposals: tuple[Proposal, ...] = ()

    @property
    def name(self) -> str:
        return self.path or "(root)"


@dataclass
class Diagnosis:
    """`ok`: the plain export is right everywhere it was asked. culprits: the likeliest first."""

    model: str
    exporter: Exporter
    opset: int
    status: str = "right"
    error: str = ""
    culprits: list[Culprit] = field(default_factory=list)
    exports: int = 0
    seconds: float = 0.0
    dimensions: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.status == "right" and not self.culprits

    @property
    def proposals(self) -> list[Proposal]:
        """Every proposal, those that were carried out with success first."""
        known = dict.fromkeys(p for culprit in self.culprits for p in culprit.proposals)
        return sorted(known, key=lambda p: (not p.whole, not p.tried))

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "ok": self.ok, **asdict(self), "proposals": [asdict(p) for p in self.proposals]}

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent, default=str)

    def headline(self) -> str:
        how = f"{self.exporter}, opset {self.opset}"
        if self.ok:
            return f"{self.model}: the plain export is right at every size and input tried ({how})"
        told = {
            "refused": "is refused by the exporter",
            "silent": "exports without a word, and the graph is wrong",
            "slow": "does not finish exporting in the time allowed",
            "right": "exports right without patches, and wrong with them",
        }
        return f"{self.model} {told.get(self.status, self.status)} ({how})"

    def __str__(self) -> str:
        lines = [one_line(self.headline())]
        for culprit in self.culprits:
            lines += ["", *map(one_line, _text(culprit))]
        lines += [one_line(f"note: {note}") for note in self.notes]
        return "\n".join([*lines, f"{self.exports} exports tried in {self.seconds:.1f} s"])

    def to_markdown(self) -> str:
        lines = [f"### {escaped(self.headline())}", ""]
        for culprit in self.culprits:
            head, *rest = _text(culprit)
            lines += [f"**{escaped(head)}**", "", *(f"- {escaped(line.strip())}" for line in rest), ""]
        lines += [f"- {escaped(note)}" for note in self.notes]
        if self.versions:
            lines += ["", escaped(", ".join(f"{name} {version}" for name, version in self.versions.items()))]
        return "\n".join(lines).rstrip() + "\n"


def _text(culprit: Culprit) -> list[str]:
    lines = [f"{culprit.name} ({culprit.cls}): {culprit.status}, {culprit.construct}"]
    if culprit.source:
        lines.append(f"  {culprit.source}" + (f": {culprit.code}" if culprit.code else ""))
    if culprit.operator:
        lines.append(f"  operator {culprit.operator}" + (f": {culprit.support}" if culprit.support else ""))
    if culprit.error:
        lines.append(f"  {culprit.error[:300]}")
    if culprit.also:
        shown = ", ".join(culprit.also[:6]) + (f" and {len(culprit.also) - 6} more" if len(culprit.also) > 6 else "")
        lines.append(f"  the same in {shown}")
    return lines + [f"  -> {_advice(p)}" for p in culprit.proposals]


def _advice(proposal: Proposal) -> str:
    if proposal.whole:
        return f"{proposal.text} (tried on the whole model: right)"
    return f"{proposal.text} (tried on this module: right)" if proposal.tried else proposal.text
