"""The page of the operators: totals, then each that is not right everywhere, with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

SIGN = {
    "right": "right",
    "nan": "right but for a NaN",
    "edge": "wrong at the edge",
    "wrong": "**silently wrong**",
    "refused": "refused",
    "crash": "crash",
}
LIBRARIES = ("torch", "onnx", "onnxscript", "onnxruntime")
Answer = dict[str, Any]
_OPSET = 18


def write(answers: Iterable[Answer], file: Path) -> None:
    file.write_text(page(list(answers)), encoding="utf-8")


def page(found: list[Answer]) -> str:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in LIBRARIES)
    lines = [
        "# Operators",
        "",
        f"Every entry of torch's own tests of operators (`op_db`) and modules (`module_db`). {versions}.",
        "",
    ]
    lines += [
        "An entry is exported with one of torch's samples, its sizes dynamic where eager takes others, and compared at",
        "the example, at other values, at other sizes, at 30 times and a thousandth of the example; dtypes, too.",
        "*Right but for a NaN*: only a NaN is answered otherwise, and by a kernel of onnxruntime: onnx's own evaluator",
        "has eager's answer of the same file. *Wrong at the edge*: only with equal values, a NaN, or a dynamic size of",
        "1. Answers are kept in `operators.jsonl`; those that were not right are measured anew after a change. Of",
        "other samples, opsets and dtypes a part is measured, drawn by the entry's name; under trace, all second and",
        "longest samples, and all at opsets 20 and 23. From opset 22 on onnxruntime has no kernel for an operator that",
        "draws (fractional pooling).",
        "",
        *_totals(found),
        "",
        "## Not right with the kit",
        "",
        *_details(found),
        "",
        "## Kernels of onnxruntime that lose a NaN",
        "",
        *_kernels(found),
        "",
        "## What ONNX cannot express",
        "",
        *_impossible(found),
        "",
        "## Left out",
        "",
        *_left_out(found),
    ]
    return "\n".join(lines) + "\n"


_GENERAL = "no operator has the eigenvalues of general matrices, nor complex numbers for them"
_SIGNS = "eigenvectors: their signs are the library's, and no operator has them"
_FAILED = "what a factorization that failed leaves is LAPACK's"
_PIVOTS = "the pivots of Bunch and Kaufman are LAPACK's"
_BITS = "below opset 26 no operator reads the bits of a float, and neither exporter writes its BitCast"
_COUNT = "a graph has a fixed number of outputs, and here a size decides it"
_MEMORY = "a graph knows no memory, and the result has what lies behind the elements"
IMPOSSIBLE = {
    "linalg.eig": _GENERAL,
    "linalg.eigvals": _GENERAL,
    "linalg.eigh": _SIGNS,
    "linalg.svd": _SIGNS,
    "svd": _SIGNS,
    "linalg.cholesky_ex": _FAILED,
    "linalg.ldl_factor": _PIVOTS,
    "linalg.ldl_factor_ex": _PIVOTS,
    "linalg.ldl_solve": _PIVOTS,
    "hash_tensor": _BITS,
    "chunk": _COUNT,
    "unsafe_chunk": _COUNT,
    "resize_": _MEMORY,
    "resize_as_": _MEMORY,
}


def _impossible(found: list[Answer]) -> list[str]:
    """Which operator or type is missing, for the entries that are refused for want of it; and what is refused else."""
    refused = {one["entry"] for one in found if one["kit"] != "plain" and one["verdict"] == "refused"}
    named: dict[str, list[str]] = {}
    for entry in sorted(refused & IMPOSSIBLE.keys()):
        named.setdefault(IMPOSSIBLE[entry], []).append(f"`{entry}`")
    listed = [f"- {', '.join(entries)}: {reason}" for reason, entries in named.items()]
    count = sum(map(len, named.values()))
    first = [one for one in found if one["kit"] != "plain" and _sample(one) == "first"]
    lines = [f"{count} entries:", "", *listed, "", "Refused beside these, of the first samples:", ""]
    for exporter in ("trace", "dynamo"):
        others = sorted(
            {f"`{one['entry']}`" for one in first if one["exporter"] == exporter and one["verdict"] == "refused"}
            - {f"`{entry}`" for entry in IMPOSSIBLE}
        )
        lines.append(f"- {exporter}: {', '.join(others) or 'none'}")
    return lines


def _kernels(found: list[Answer]) -> list[str]:
    named: dict[str, set[str]] = {}
    for one in found:
        if one["kit"] != "plain" and one["verdict"] == "nan":
            named.setdefault(one["reason"], set()).add(f"`{one['entry']}`")
    return [f"- {reason}: {', '.join(sorted(entries))}" for reason, entries in sorted(named.items())]


def _totals(found: list[Answer]) -> list[str]:
    lines = [
        "| | sample | exporter | | " + " | ".join(word.strip("*") for word in SIGN.values()) + " | of |",
        "|---" * (5 + len(SIGN)) + "|",
    ]
    for column in sorted({_column(one) for one in found}):
        verdicts = Counter(one["verdict"] for one in found if _column(one) == column)
        verdicts.pop("left out", None)
        counts = [str(verdicts.get(sign, 0)) for sign in SIGN]
        lines.append(f"| {' | '.join((*column, *counts, str(verdicts.total())))} |")
    return lines


def _column(one: Answer) -> tuple[str, ...]:
    return one["database"], _sample(one), one["exporter"], "plain" if one["kit"] == "plain" else "with the kit"


def _sample(one: Answer) -> str:
    opset = "" if one["opset"] == _OPSET else f"opset {one['opset']}"
    return " ".join(filter(None, (one["sample"], one["dtype"], opset)))


def _details(found: list[Answer]) -> list[str]:
    """A line for each entry that is not right in one of the exporters, with what plain export makes of it."""
    lines = ["| entry | sample | exporter | plain | with the kit | reason |", "|---" * 6 + "|"]
    plain = {_asked(one): one["verdict"] for one in found if one["kit"] == "plain"}
    for one in sorted(found, key=_asked):
        if one["kit"] != "plain" and one["verdict"] not in ("right", "nan", "left out"):
            entry, exporter = one["entry"], one["exporter"]
            without = SIGN.get(plain.get(_asked(one), ""), "")
            reason = one["reason"].replace("|", "\\|")
            cells = (f"`{entry}`", _sample(one), exporter, without, SIGN[one["verdict"]], reason)
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _asked(one: Answer) -> tuple[str, ...]:
    return one["database"], one["entry"], _sample(one), one["exporter"]


def _left_out(found: list[Answer]) -> list[str]:
    named: dict[str, set[str]] = {}
    for one in found:
        if one["verdict"] == "left out" and _sample(one) == "first":
            named.setdefault(one["reason"], set()).add(one["entry"])
    return [
        f"- {reason}: {', '.join(f'`{name}`' for name in sorted(names))}" for reason, names in sorted(named.items())
    ]
