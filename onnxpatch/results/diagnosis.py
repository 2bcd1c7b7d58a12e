"""`Diagnosis`: what `onnxpatch.doctor` found, as text for a terminal, JSON for tools and Markdown for issues.

A diagnosis has culprits, the smallest parts of the model that fail by themselves, and a culprit has proposals, the ways
to make it export.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from onnxpatch.messages.text import in_seconds, one_line, plural, relative
from onnxpatch.messages.text import markdown as escaped
from onnxpatch.results.report import fragment
from onnxpatch.results.report_text import shown
from onnxpatch.settings import Exporter

SCHEMA = 1  # counted up when a field of the JSON changes its meaning or goes
_MOST_ALSO = 6  # modules with the same fault that the text names
_LONGEST_ERROR = 300  # characters of an exporter's error in the text

_OPSET = 18  # that `export` takes unless told otherwise
_ORDER = {"patch": 0, "branches": 1, "exporter": 2}

_HEADLINES = {
    "refused": "the exporter cannot export it",
    "silent": "exports without an error, but the graph is wrong",
    "slow": "does not finish exporting in the time allowed",
    "right": "exports right without patches, and wrong with them",
}


_WORDS = {"silent": "wrong, without an error", "slow": "too slow to export", "patch": "wrong with patches"}


@dataclass(frozen=True)
class Proposal:
    """One way to make a culprit export right.

    kind: patch, exporter, branches, export, decorator, rewrite, or none (nothing is known to help).
    name: what to use: names of patches, an exporter, a keyword.
    text: what to do, as a sentence.
    tried: True where it was done to the culprit alone and the export came out right; False where it was not tried.
    whole: the same for the whole model; None where that was not tried, False where it was not enough.
    """

    kind: str
    name: str
    text: str
    tried: bool = False
    whole: bool | None = None


@dataclass(frozen=True)
class Culprit:
    """The smallest part of a model that fails by itself.

    path: of the module in the model ("" for the model itself), with `.method()` where a method is called directly.
    cls: the name of its class.
    status: refused (the exporter raised), silent (it exported without an error, and the graph is wrong), slow, or patch
    (plain it is right, with its patches it is not).
    construct: what kind of code is at fault, such as "branch on a size". source: its file:line. code: that line.
    operator: the aten operator at fault, if one is. support: how the exporters of the installed torch write it.
    error: the exporter's error, or how far the graph is off.
    also: paths of other modules of the same class and shapes. proposals: the most promising first.
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
        """The path for people: "(root)" for the model itself."""
        return self.path or "(root)"


@dataclass(repr=False)
class Diagnosis:
    """Why a model does not export, or exports wrong, and what would help. `print(diagnosis)` says it in a few lines.

    status: of the plain export of the whole model: "right"; "refused" (the exporter raised); "silent" (it exported
        without an error, and the file is wrong); "slow". error: the exporter's error, or how far the file is off.
    culprits: the smallest parts that fail by themselves, the likeliest first.
    exports: how many exports were tried, in `seconds`. notes: what was left undone, and other remarks.
    dimensions: each dimension that may change, with the example's size. versions: of the libraries involved.
    recorded: for `new_patch`, what each culprit was called with; no part of the JSON.
    """

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
    recorded: Any = field(default=(), repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the plain export is right at every size and input tried, and patches do not break it."""
        return self.status == "right" and not self.culprits

    def __bool__(self) -> bool:
        """Whether there is nothing to cure: the same as `ok`."""
        return self.ok

    @property
    def proposals(self) -> list[Proposal]:
        """Every proposal once, those first that made the whole model right, then those that made a culprit right."""
        # Several culprits often have the same proposal, and Proposal is hashable.
        distinct = dict.fromkeys(p for culprit in self.culprits for p in culprit.proposals)
        return sorted(distinct, key=lambda p: (not p.whole, not p.tried))

    @property
    def cures(self) -> list[Proposal]:
        """The proposals that made the whole model right, those that change least first."""
        return sorted((p for p in self.proposals if p.whole), key=lambda p: _ORDER.get(p.kind, 3))

    def keywords(self, proposal: Proposal) -> dict[str, object]:
        """What `export` is called with to do what a proposal says."""
        exporter = proposal.name if proposal.kind == "exporter" else self.exporter
        left_out = proposal.name.split(",") if proposal.kind == "exclude" else []
        asked: dict[str, object] = {"exporter": exporter} if exporter != "dynamo" else {}
        asked |= {"branches": True} if proposal.kind == "branches" else {}
        asked |= {"exclude": left_out[0] if len(left_out) == 1 else left_out} if left_out else {}
        return asked | ({"opset_version": self.opset} if self.opset != _OPSET else {})

    def to_dict(self) -> dict[str, object]:
        """Plain values: the fields, and `schema`, `ok` and all proposals."""
        # asdict copies deeply, and what was recorded has modules and tensors.
        plain = asdict(replace(self, recorded=()))
        del plain["recorded"]
        return {"schema": SCHEMA, "ok": self.ok, **plain, "proposals": [asdict(p) for p in self.proposals]}

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, default=str)

    def headline(self) -> str:
        """The verdict on one line: `Net: the exporter refuses it (dynamo, opset 18)`."""
        verdict = _HEADLINES.get(self.status, self.status)
        if self.ok:
            verdict = "the plain export is right at every size and input tried"
        return f"{self.model}: {verdict} ({self.exporter}, opset {self.opset})"

    def __str__(self) -> str:
        lines = [shown(self.headline())]
        for culprit in self.culprits:
            lines += ["", *map(shown, _lines(culprit))]
        lines += [shown(f"note: {note}") for note in self.notes]
        for cure in self.cures[:1]:
            words = ["model", "...", *(f"{key}={value!r}" for key, value in self.keywords(cure).items())]
            lines.append(shown(f"next: onnxpatch.export({', '.join(words)})"))
        return "\n".join([*lines, f"{plural(self.exports, 'export')} tried in {in_seconds(self.seconds)}"])

    def __repr__(self) -> str:
        return f"<Diagnosis {one_line(self.headline())}; {len(self.culprits)} at fault>"

    def _repr_html_(self) -> str:
        header = ("at fault", "class", "what", "where", "what would help")
        rows = [
            (c.name, c.cls, c.construct, relative(f"{c.source} {c.code}".strip()), "; ".join(map(_advice, c.proposals)))
            for c in self.culprits
        ]
        found = [f"{c.name}: {c.error[:_LONGEST_ERROR]}" for c in self.culprits if c.error]
        state = "good" if self.ok else "bad"
        return fragment(self.headline(), state, header, rows, [*found, *self.notes], "the parts at fault", opened=True)

    def to_markdown(self) -> str:
        """The same as `print(diagnosis)`, for an issue."""
        lines = [f"### {escaped(self.headline())}", ""]
        for culprit in self.culprits:
            head, *rest = _lines(culprit)
            lines += [f"**{escaped(head)}**", "", *(f"- {escaped(relative(line.strip()))}" for line in rest), ""]
        lines += [f"- {escaped(note)}" for note in self.notes]
        if self.versions:
            lines += ["", escaped(", ".join(f"{name} {version}" for name, version in self.versions.items()))]
        return "\n".join(lines).rstrip() + "\n"


def _lines(culprit: Culprit) -> list[str]:
    lines = [f"{culprit.name} ({culprit.cls}): {_WORDS.get(culprit.status, culprit.status)}: {culprit.construct}"]
    if culprit.source:
        lines.append(f"  {culprit.source}" + (f": {culprit.code}" if culprit.code else ""))
    if culprit.operator:
        lines.append(f"  operator {culprit.operator}" + (f": {culprit.support}" if culprit.support else ""))
    if culprit.error:
        lines.append(f"  {culprit.error[:_LONGEST_ERROR]}")
    if culprit.also:
        more = len(culprit.also) - _MOST_ALSO
        lines.append(
            f"  the same in {', '.join(culprit.also[:_MOST_ALSO])}" + (f" and {more} more" if more > 0 else "")
        )
    return lines + [f"  {'' if p.kind == 'none' else '-> '}{_advice(p)}" for p in culprit.proposals]


def _advice(proposal: Proposal) -> str:
    if proposal.whole:
        return f"{proposal.text} (tried on the whole model: right)"
    if proposal.tried:
        enough = ", not enough for the whole model" if proposal.whole is False else ""
        return f"{proposal.text} (tried on this module: right{enough})"
    return proposal.text if proposal.kind == "none" else f"{proposal.text} (not tried)"
