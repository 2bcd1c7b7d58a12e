"""Writes how many files that are right in onnxruntime are right in OpenVINO, family by family, into the docs.

usage: python -m benchmarks.coverage --openvino --into openvino --every 3 --exporter trace --kit plain,export
       python -m benchmarks.openvino_table

Reads benchmarks/results/openvino_<family>.jsonl and writes a part of docs/compatibility.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.matrix_table import put, table

RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- openvino: written by benchmarks.openvino_table -->", "<!-- openvino: end -->"
_LONGEST = 150  # characters of a reason
_BOILERPLATE = re.compile(
    r"the file does not load: RunError: |FrontEnd API failed with \w+: |Failed operations detailed log: -- |"
    r"Check '.*?' failed at \S+ "
)

Answer = dict[str, Any]


def read(folder: Path = RESULTS) -> dict[str, list[Answer]]:
    """The answers of each family that was measured."""
    return {
        path.stem.removeprefix("openvino_"): [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("openvino_*.jsonl"))
    }


def text(found: dict[str, list[Answer]]) -> str:
    """The Markdown between the two marks."""
    rows = [_row(family.replace("_", " "), _of(answers, "export")) for family, answers in found.items()]
    every = [one for answers in found.values() for one in _of(answers, "export")]
    header = ("family", "models", "right in onnxruntime", "of these right in OpenVINO")
    parts = [table(header, [*rows, _row("**all**", every)])]
    if left := [one for answers in found.values() for one in _left(answers)]:
        parts += ["Not right in OpenVINO:", table(("model", "", "torch alone", "what OpenVINO says"), left)]
    return "\n\n".join(parts)


def _of(answers: Iterable[Answer], kit: str) -> list[Answer]:
    return [one for one in answers if one["kit"] == kit]


def _row(name: str, answers: list[Answer]) -> tuple[str, ...]:
    right = [one for one in answers if one["verdict"] == "right"]
    also = sum(one["openvino"] == "right" for one in right)
    share = f"{also} ({also / len(right):.0%})" if right else "0"
    return name, str(len(answers)), str(len(right)), share


def _left(answers: list[Answer]) -> list[tuple[str, ...]]:
    """A row for each model whose file is right in onnxruntime alone."""
    plain = {one["case"]: one for one in _of(answers, "plain")}
    return [
        (f"`{one['case']}`", one["openvino"], _plain(plain.get(one["case"])), _reason(one["openvino_reason"]))
        for one in _of(answers, "export")
        if one["verdict"] == "right" and one["openvino"] != "right"
    ]


def _plain(answer: Answer | None) -> str:
    """What became of plain torch's file: OpenVINO's verdict where it is right in onnxruntime."""
    if answer is None:
        return ""
    return str(answer["openvino"] or f"{answer['verdict']} in onnxruntime")


def _reason(reason: str) -> str:
    short = _BOILERPLATE.sub("", reason).replace("|", "\\|").replace("<", "&lt;")
    return short if len(short) <= _LONGEST else short[:_LONGEST].rsplit(" ", 1)[0] + " …"


def main() -> None:
    put(BEGIN, text(read()), END)


if __name__ == "__main__":
    main()
