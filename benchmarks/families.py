"""One table of all families, made from the pages of coverage: `python -m benchmarks.families`.

Reads the totals of `benchmarks/results/coverage_FAMILY.md`, runs nothing, and writes `benchmarks/results/families.md`.
`--answers FOLDER` writes `default_exports_EXPORTER.md` there instead: the memory and the time of the exports whose
answers `python -m benchmarks.coverage --kit default --into default --answers FOLDER` kept.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.tables import versions

RESULTS = Path(__file__).parent / "results"
HEAD = "| family | exporter | | right | silently wrong | refused | models | most memory, MB |"


def rows() -> list[str]:
    """A row for each family, exporter and kit."""
    found = []
    for page in sorted(RESULTS.glob("coverage_*.md")):
        family = page.stem.removeprefix("coverage_").replace("_", " ")
        lines = page.read_text(encoding="utf-8").splitlines()
        start = next(at for at, line in enumerate(lines) if line.startswith("| exporter |"))
        names = [cell.strip() for cell in lines[start].strip("|").split("|")]
        for line in lines[start + 2 :]:
            if not line.startswith("|"):
                break
            cells = dict(zip(names[2:], (cell.strip() for cell in line.strip("|").split("|")[2:]), strict=True))
            exporter, kit = (cell.strip() for cell in line.strip("|").split("|")[:2])
            count = cells.get("exports") or cells["models"]
            numbers = [cells["right"], cells["silently wrong"], cells["refused"], count]
            numbers.append(cells.get("most memory, MB", ""))
            found.append(f"| {' | '.join([family, exporter, kit, *numbers])} |")
    return found


def costs(folder: Path) -> list[str]:
    """A row for each family whose answers are in a folder, and one for all."""
    found = []
    for file in sorted(folder.glob("default_*.jsonl")):
        answers = {one["case"]: one for one in map(json.loads, file.read_text(encoding="utf-8").splitlines())}
        found.append((file.stem.removeprefix("default_").replace("_", " "), list(answers.values())))
    found.append(("all", [one for _, answers in found for one in answers]))
    return [_cost(name, answers) for name, answers in found]


def _cost(family: str, answers: list[dict[str, float]]) -> str:
    def most(name: str) -> float:
        return max(one.get(name) or 0 for one in answers)

    right = sum(one["verdict"] == "right" for one in answers)
    tried, left = (sum(one.get(name) or 0 for one in answers) for name in ("probes", "left_out"))
    memory = f"{most('process') / 1e6:,.0f} | {most('peak') / 1e6:,.0f}"
    cells = [
        family,
        f"{right} of {len(answers)}",
        memory,
        f"{most('seconds'):.0f}",
        f"{left:.0f} of {tried + left:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def write_costs(folder: Path) -> None:
    (exporter,) = {
        json.loads(line)["exporter"] for file in folder.glob("*.jsonl") for line in file.open(encoding="utf-8")
    }
    head = (
        "| family | right | most memory of the process, MB | of a run of eager, MB | most seconds | inputs left out |"
    )
    text = [
        "# What an export with all attempts takes", "", f"Versions: {versions('torchvision')}.", "",
        f"`onnxpatch.export(..., exporter={exporter!r})` of every model of the families, one at a time, "
        "proof included. Memory is beside what the process had before. Seconds are of the processor. Inputs are left "
        "out where a run would take more memory than `max_memory` allows.", "", head, "|---" * 6 + "|", *costs(folder),
    ]  # fmt: skip
    (RESULTS / f"default_exports_{exporter}.md").write_text("\n".join(text) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--answers", type=Path, help="write the table of memory and time from the answers in this folder"
    )
    if folder := parser.parse_args().answers:
        return write_costs(folder)
    text = "\n".join(["# Coverage of all families", "", HEAD, "|---" * 8 + "|", *rows()]) + "\n"
    (RESULTS / "families.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
