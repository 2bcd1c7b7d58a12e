"""What the page of a diagnosis shows, as the dict that its template reads."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import torch

from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.html.planned import around, tree_rows
from onnxpatch.results.diagnosis import Culprit, Diagnosis, Proposal

REWRITES = {
    kinds.BRANCH_TENSOR: "y = torch.where(x.mean() > 0, f(x), g(x))  # for: y = f(x) if x.mean() > 0 else g(x)",
    kinds.BRANCH_SIZE: "x = F.pad(x, (0, -x.shape[-1] % 4))  # for: if x.shape[-1] % 4: x = F.pad(x, ...)",
    kinds.NUMBER_TENSOR: "last = x.index_select(1, lengths.max() - 1)  # for: x[:, int(lengths.max()) - 1]",
    kinds.NUMBER_SIZE: "y = x[:, : x.shape[1] // 2]  # for: x[:, : int(x.shape[1] / 2)]",
    kinds.LOOP_ROWS: "y = x @ weight  # for: torch.stack([row @ weight for row in x])",
    kinds.LOOP_SIZE: "y = x.cumsum(1)  # for: for i in range(1, x.shape[1]): x[:, i] += x[:, i - 1]",
    kinds.LOOP_TENSOR: (
        "def more(x):\n    return x.sum() < 100\n\ndef body(x):\n    return x * 2\n\n"
        "y = onnxpatch.while_loop(more, body, x)  # for: while x.sum() < 100: x = x * 2"
    ),
    kinds.BUILT: "t = torch.stack([a, b])  # for: torch.tensor([a, b]), of tensors a and b",
    kinds.FIXED_SIZE: "y = x.reshape(x.shape[0], -1)  # for: x.reshape(2, -1), with the example's 2",
    kinds.DATA_SIZE: "y = x * (x > 0)  # for: x[x > 0], where zeros do no harm",
    kinds.COMPLEX: "re, im = a * c - b * d, a * d + b * c  # for: torch.complex(a, b) * torch.complex(c, d)",
    kinds.STATE: "table = torch.arange(x.shape[1], device=x.device)  # for: self.table, kept from the last call",
}
ONNX_FORM = """@onnxpatch.onnx_forward
def forward_for_onnx(self, x):  # in the class at fault; it is `forward` while a model is exported
    ..."""
_VERDICTS = {"silent": "wrong", "slow": "too slow", "patch": "wrong with patches"}


def diagnosis_context(model: torch.nn.Module, diagnosis: Diagnosis, command: str = "") -> dict[str, object]:
    """The names that diagnosis.html.j2 uses. command: an `onnxpatch export` of the model, if it came from a shell."""
    culprits = diagnosis.culprits
    return {
        "model": diagnosis.model,
        "verdict": verdict("patch" if culprits and diagnosis.status == "right" else diagnosis.status),
        "state": "good" if diagnosis.ok else "bad",
        "summary": diagnosis.headline(),
        "diagnosis": diagnosis,
        "ways": _ways(diagnosis, command),
        "error": "" if any(culprit.error == diagnosis.error for culprit in culprits) else diagnosis.error,
        "culprits": [_card(culprit, diagnosis, command) for culprit in culprits],
        "rows": tree_rows(model, _notes(culprits)),
    }


def _ways(diagnosis: Diagnosis, command: str) -> list[tuple[str, str]]:
    """(Python or a command, what it does) for each way that made the whole model right, patches first."""
    ways: dict[str, str] = {}
    for one in diagnosis.cures:
        ways.setdefault(_export(one, diagnosis, command), one.text)
    return list(ways.items())


def _export(proposal: Proposal, diagnosis: Diagnosis, command: str) -> str:
    """The export with a proposal, in Python or as a command."""
    asked = diagnosis.keywords(proposal)
    if command:  # it has its opset already
        return _command(command, {key: value for key, value in asked.items() if key != "opset_version"})
    return _call(diagnosis, asked)


def _code(proposal: Proposal, diagnosis: Diagnosis, command: str) -> str:
    """What a proposal is, as Python or as a command; "" where there is nothing to type."""
    if proposal.kind == "rewrite":
        return REWRITES.get(proposal.name, "")
    if proposal.kind == "decorator":
        return ONNX_FORM
    return (
        _export(proposal, diagnosis, command) if proposal.kind in ("patch", "branches", "exporter", "exclude") else ""
    )


def _call(diagnosis: Diagnosis, asked: Mapping[str, object]) -> str:
    # The caller's own variable: a line with `...` in it could not be pasted.
    sizes = ["dynamic_shapes=dynamic_shapes"] if diagnosis.dimensions else []
    words = ["model", "args", '"model.onnx"', *sizes, *(f"{key}={value!r}" for key, value in asked.items())]
    return f"onnxpatch.export({', '.join(words)})"


def _command(command: str, asked: Mapping[str, object]) -> str:
    flags = [
        f"--{key}" if value is True else f"--{key} {shlex.quote(str(value))}"
        for key, given in asked.items()
        for value in (given if isinstance(given, list) else [given])
    ]
    return " ".join([command, *flags])


def _card(culprit: Culprit, diagnosis: Diagnosis, command: str) -> dict[str, object]:
    listed = [one for one in culprit.proposals if one.kind != "none"]
    return {
        "culprit": culprit,
        "verdict": verdict(culprit.status),
        "lines": around(culprit.source),
        "proposals": [(one.text, *_outcome(one), _code(one, diagnosis, command)) for one in listed],
        "none": next((one.text for one in culprit.proposals if one.kind == "none"), ""),
    }


def verdict(status: str) -> str:
    """A status of a diagnosis in the words of the other pages: right, wrong, refused and so on."""
    return _VERDICTS.get(status, status)


def _outcome(proposal: Proposal) -> tuple[str, str]:
    """What trying a proposal showed, and the CSS class for it."""
    if proposal.whole:
        return "tried on the whole model: right", "good"
    if proposal.tried:
        enough = ", not enough for the whole model" if proposal.whole is False else ""
        return f"tried on this part: right{enough}", "half"
    return "not tried", "idle"


def _notes(culprits: list[Culprit]) -> dict[str, tuple[str, str]]:
    """The notes for the module tree: what each culprit is, and which modules have the same fault."""
    notes: dict[str, tuple[str, str]] = {}
    for culprit in culprits:
        for path in map(_module, culprit.also):
            notes.setdefault(path, ("culprit", f"as in {culprit.name}"))
    # Reversed: of several culprits in one module the first, which is the likeliest, stays.
    return notes | {_module(c.path): ("culprit", f"{verdict(c.status)}: {c.construct}") for c in reversed(culprits)}


def _module(path: str) -> str:
    """The module's path in a culprit's path, which may end in a method: `decoder.step()` is of `decoder`."""
    path = re.sub(r"\.\w+\(\)$", "", path)
    return "" if path == "(root)" else path
