"""Writes what `benchmarks.proofs` found at other opsets into docs/compatibility.md.

usage: python -m benchmarks.proofs --opset 21 --part 3/5 --exporter trace --into benchmarks/results/opset_21.jsonl
       python -m benchmarks.opset_table

A tier of the proofs at each opset, so that all of them together are each run once.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.matrix_table import Row, put, read, reason, table

RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- opsets: written by benchmarks.opset_table -->", "<!-- opsets: end -->"
_HEADER = ("opset", "proofs run", "right with the patch", "refused or wrong, with the patch and without", "failed")


def found(folder: Path = RESULTS) -> dict[int, list[Row]]:
    """The rows of each opset."""
    paths = {int(path.stem.removeprefix("opset_")): path for path in folder.glob("opset_*.jsonl")}
    return {opset: read(path)[1] for opset, path in sorted(paths.items())}


def text(rows: dict[int, list[Row]]) -> str:
    """The Markdown between the two marks."""
    parts = [table(_HEADER, [_counted(opset, one) for opset, one in rows.items()])]
    left = [
        (str(opset), f"`{row['patch']}`", str(row["status"]), reason(row))
        for opset, one in rows.items()
        for row in one
        if row["status"] != "proven"
    ]
    if left:
        parts.append(table(("opset", "proof", "", "what it says"), left))
    return "\n\n".join(parts)


def _counted(opset: int, rows: list[Row]) -> tuple[str, ...]:
    counts = Counter(row["status"] for row in rows)
    return (str(opset), str(len(rows)), *(str(counts[status]) for status in ("proven", "refused", "failed")))


def main() -> None:
    put(BEGIN, text(found()), END)


if __name__ == "__main__":
    main()
