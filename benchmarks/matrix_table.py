"""Writes what `benchmarks.proofs` found in each environment into docs/compatibility.md.

usage: python -m benchmarks.matrix_table
       python -m benchmarks.matrix_table --check FILE.jsonl     exit code 1 where a proof of that file failed
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from benchmarks.environments import ENVIRONMENTS, NOT_TOGETHER

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"
BEGIN, END = "<!-- matrix: written by benchmarks.matrix_table -->", "<!-- matrix: end -->"
LIBRARIES = ("onnx", "onnxscript", "onnxruntime", "einops", "transformers", "timm")
# As `benchmarks.proofs` writes them -> as the table has them.
STATUSES = {
    "proven": "held",
    "unexplained": "held, other reason",
    "refused": "refused",
    "obsolete": "obsolete",
    "failed": "failed",
}
# A proof held for another reason: right with the patch, and without it not, though not as the proof says.
_SHOWN = ("held", "held, other reason", "refused", "obsolete", "failed")
_LONGEST = 150  # characters of a reason

Row = dict[str, Any]


def read(path: Path) -> tuple[Row, list[Row]]:
    """(What the environment is made of, one row for each proof.)"""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return lines[0], lines[1:]


def reason(row: Row) -> str:
    """Why a proof does not hold, in one short line."""
    text = re.sub(r"^(failed|refused|obsolete|unexplained) \((.*?)\)?$", r"\2", " ".join(row["reason"].split()))
    text = re.sub(r" \([^()]*: \w{12}.*", "", text)  # the fingerprints of code that is known
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : (\w+) : ", "", text)
    text = text.replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"


def tables(found: dict[str, tuple[Row, list[Row]]]) -> str:
    """The Markdown between the two marks."""
    parts = [_installed(found), _counts(found), _exceptions(found), _not_together(), _not_run(found)]
    return "\n\n".join(part for part in parts if part)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _installed(found: dict[str, tuple[Row, list[Row]]]) -> str:
    rows = []
    for name, (made, _) in found.items():
        versions = made["versions"]
        bare = [versions.get(library, "-") for library in LIBRARIES]
        rows.append((name, made["date"], made["python"], versions["torch"].partition("+")[0], *bare))
    return table(("environment", "date", "Python", "torch", *LIBRARIES), rows)


def _counts(found: dict[str, tuple[Row, list[Row]]]) -> str:
    rows = []
    for name, (_, proofs) in found.items():
        for title, exporters in (("trace and script", ("trace", "script")), ("dynamo", ("dynamo",))):
            counts = Counter(STATUSES[row["status"]] for row in proofs if row["exporter"] in exporters)
            if counts:
                shown = [str(counts[one]) for one in _SHOWN]
                rows.append((name, title, str(counts.total()), *shown))
    return table(("environment", "exporter", "proofs run", *_SHOWN), rows)


def _exceptions(found: dict[str, tuple[Row, list[Row]]]) -> str:
    """What did not hold, once for each proof and reason, with the environments in which it did not."""
    places: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for name, (_, proofs) in found.items():
        for row in proofs:
            if STATUSES[row["status"]] != "held":
                places[STATUSES[row["status"]], row["patch"], row["exporter"], reason(row)].append(name)
    rows = [(kind, f"`{patch}`", exporter, ", ".join(names), why)
            for (kind, patch, exporter, why), names in sorted(places.items())]  # fmt: skip
    return table(("", "proof", "exporter", "where", "what it says"), rows) if rows else ""


def _not_together() -> str:
    return "Versions that cannot be installed together:\n\n" + table(("", "with", "why not"), NOT_TOGETHER)


def _not_run(found: dict[str, tuple[Row, list[Row]]]) -> str:
    missing = [f"`{name}` (Python {python})" for name, (python, _) in ENVIRONMENTS.items() if name not in found]
    return f"Environments of the matrix that were not run: {', '.join(missing)}." if missing else ""


def put(begin: str, text: str, end: str) -> None:
    """Write the text into the page, between two marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    PAGE.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def failures(path: Path) -> list[str]:
    """A sentence for each proof of a file that failed, and for each patch that did not load."""
    made, proofs = read(path)
    unloaded = [f"{name} does not load: {why}" for name, why in made["not loaded"].items()]
    return unloaded + [f"{r['patch']} ({r['exporter']}): {r['reason']}" for r in proofs if r["status"] == "failed"]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=Path, help="only say which proofs of this file failed")
    asked = parser.parse_args(argv)
    if asked.check:
        told = failures(asked.check)
        print("\n".join(told) or "no proof failed")
        sys.exit(1 if told else 0)
    paths = {name: RESULTS / f"proofs_{name}.jsonl" for name in ENVIRONMENTS}
    found = {name: read(path) for name, path in paths.items() if path.exists()}
    put(BEGIN, tables(found), END)


if __name__ == "__main__":
    main()
