"""One table of all families, made from the pages of coverage: `python -m benchmarks.families`.

Reads the totals of `benchmarks/results/coverage_FAMILY.md`, runs nothing, and writes `benchmarks/results/families.md`.
"""

from __future__ import annotations

from pathlib import Path

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


def main() -> None:
    text = "\n".join(["# Coverage of all families", "", HEAD, "|---" * 8 + "|", *rows()]) + "\n"
    (RESULTS / "families.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
