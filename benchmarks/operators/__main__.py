"""Runs the entries in forked children and writes the table: `python -m benchmarks.operators --exporter trace`.

Answers are kept in a .jsonl file: a run that was stopped goes on where it was. --again measures anew after a change,
with --only, --listed or --every a part of it. --table writes the page from what is there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import resource
import zlib
from pathlib import Path
from typing import Any

from benchmarks import forked
from benchmarks.operators import judge, table
from benchmarks.operators.entries import modules, operators

_SECONDS = {"trace": 60.0, "dynamo": 150.0}
_BYTES = 12 << 30  # of address space
ANSWERS = Path(__file__).parent.parent / "results" / "operators.jsonl"
Key = tuple[str, ...]
KEY = ("database", "entry", "sample", "dtype", "exporter", "kit", "opset")
_OPSET = 18


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exporter", choices=("trace", "dynamo"), default="trace")
    parser.add_argument("--kit", choices=("plain", "kit"), nargs="*", default=["plain", "kit"])
    parser.add_argument("--sample", choices=("first", "second", "most"), default="first")
    parser.add_argument(
        "--dtype",
        nargs="*",
        default=[""],
        help="left out: the first of float32, int64, bool, float64 that an entry takes",
    )
    parser.add_argument("--opset", type=int, default=_OPSET)
    parser.add_argument("--every", type=int, default=1, help="one of so many entries, always the same ones")
    parser.add_argument("--database", choices=("operators", "modules"), nargs="*", default=["operators", "modules"])
    parser.add_argument("--only", default="", help="a regular expression that names of entries match")
    parser.add_argument("--listed", type=Path, help="a file with names of entries, one a line")
    parser.add_argument("--again", action="store_true", help="measure anew what is there")
    parser.add_argument("--out", type=Path, default=ANSWERS)
    parser.add_argument("--table", action="store_true", help="write the table only")
    given = parser.parse_args()
    if not given.table:
        measure(given)
    table.write(read(given.out).values(), given.out.with_suffix(".md"))


def read(file: Path) -> dict[Key, dict[str, Any]]:
    """The answers by what was asked; of two for one question the later."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    found = [json.loads(line) for line in lines if line.strip()]
    found = [{**one, "opset": int(one.get("opset", _OPSET))} for one in found]
    return {tuple(str(one[key]) for key in KEY): one for one in found}


def measure(given: Any) -> None:
    known = {} if given.again else read(given.out)
    listed = given.listed.read_text(encoding="utf-8").split() if given.listed else None
    judge.export_once(given.exporter)
    operators(), modules()
    for database in given.database:
        for name in operators() if database == "operators" else modules():
            left_out = not re.search(given.only, name) or (listed is not None and name not in listed)
            if left_out or zlib.crc32(name.encode()) % given.every:
                continue
            for dtype, kit in itertools.product(given.dtype, given.kit):
                asked = (database, name, given.sample, dtype, given.exporter, kit, str(given.opset))
                if asked in known:
                    continue
                line = {**dict(zip(KEY, asked, strict=True)), **_answer(asked)}
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(*asked[1:], line["verdict"], line["reason"][:100], flush=True)


def _answer(asked: Key) -> dict[str, Any]:
    database, name, sample, dtype, exporter, kit, opset = asked

    def job() -> dict[str, Any]:
        resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
        return judge.answer(database, name, sample, exporter, kit, dtype or None, int(opset))

    found = forked.run(job, _SECONDS[exporter])
    died = str(found["reason"]).startswith("the process died")
    return {**found, "verdict": "crash"} if died else found


if __name__ == "__main__":
    main()
