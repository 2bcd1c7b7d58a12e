"""The matrix of versions: every version is met twice, the workflow asks for what there is, the table is current."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import matrix_table, openvino_table, opset_table
from benchmarks.environments import ENVIRONMENTS, NOT_TOGETHER

ROOT = Path(__file__).parent.parent


def test_every_version_is_in_two_environments_or_more() -> None:
    met = Counter(python for python, _ in ENVIRONMENTS.values())
    met.update(asked for _, packages in ENVIRONMENTS.values() for asked in packages)
    assert [what for what, times in met.items() if times < 2] == []
    assert {"3.10", "3.11", "3.12", "3.13", "3.14"} <= met.keys()
    assert all(why for _, _, why in NOT_TOGETHER)


def sessions() -> set[str]:
    """The functions of noxfile.py that are sessions."""
    functions = [n for n in ast.parse((ROOT / "noxfile.py").read_text()).body if isinstance(n, ast.FunctionDef)]
    return {one.name for one in functions if any("session" in ast.unparse(by) for by in one.decorator_list)}


def test_the_workflow_runs_sessions_that_there_are() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "newest.yml").read_text())["jobs"]
    commands = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    asked = {name for command in commands for name in re.findall(r"nox -s ['\"]?(\w+)", command)}
    assert asked and asked <= sessions()


def row(patch: str, status: str, reason: str = "") -> dict[str, object]:
    return {"patch": patch, "exporter": "trace", "status": status, "reason": reason}


def write(path: Path, *rows: dict[str, object], unloaded: dict[str, str] | None = None) -> Path:
    made = {"date": "2026-11-22", "python": "3.11.7", "versions": {"torch": "2.6.0+cpu"}, "not loaded": unloaded or {}}
    path.write_text("\n".join(json.dumps(one) for one in (made, *rows)) + "\n")
    return path


def test_the_table_counts_and_names_what_did_not_hold(tmp_path: Path) -> None:
    rows = [row("a", "proven"), row("b", "unexplained"), row("c", "refused", "refused (needs torch<2, found 3)")]
    first = write(tmp_path / "1", *rows, row("d", "failed", "failed (wrong: a | b)"))
    second = write(tmp_path / "2", row("d", "failed", "failed (wrong: a | b)"), unloaded={"e": "ImportError"})
    text = matrix_table.tables({"one": matrix_table.read(first), "two": matrix_table.read(second)})
    assert "| one | trace and script | 4 | 1 | 1 | 1 | 0 | 1 |" in text
    assert "| failed | `d` | trace | one, two | wrong: a \\| b |" in text
    assert "| refused | `c` | trace | one | needs torch&lt;2, found 3 |" in text
    assert "| one | 2026-11-22 | 3.11.7 | 2.6.0 |" in text and "were not run: `torch26-oldest` (Python 3.10)" in text
    assert matrix_table.failures(first) == ["d (trace): failed (wrong: a | b)"]
    assert matrix_table.failures(second)[0] == "e does not load: ImportError"


def test_the_page_has_the_table_of_the_committed_results() -> None:
    paths = {name: matrix_table.RESULTS / f"proofs_{name}.jsonl" for name in ENVIRONMENTS}
    found = {name: matrix_table.read(path) for name, path in paths.items() if path.exists()}
    assert matrix_table.tables(found) in matrix_table.PAGE.read_text(encoding="utf-8"), "run: nox -s table"


def test_the_page_has_the_other_tables_of_the_committed_results() -> None:
    page = matrix_table.PAGE.read_text(encoding="utf-8")
    assert openvino_table.text(openvino_table.read()) in page, "run: python -m benchmarks.openvino_table"
    assert opset_table.text(opset_table.found()) in page, "run: python -m benchmarks.opset_table"


def answer(case: str, kit: str, verdict: str, openvino: str = "", why: str = "") -> dict[str, str]:
    return {"case": case, "kit": kit, "verdict": verdict, "openvino": openvino, "openvino_reason": why}


def test_the_table_of_openvino_counts_what_is_right_in_both() -> None:
    plain = [answer("a", "plain", "wrong"), answer("b", "plain", "right", "refused")]
    kit = [answer("a", "export", "right", "wrong", "at (2, 3): x | y"), answer("b", "export", "right", "refused", "no")]
    text = openvino_table.text({"two_words": [*plain, *kit, answer("c", "export", "right", "right")]})
    assert "| two words | 3 | 3 | 1 (33%) |" in text and "| **all** | 3 | 3 | 1 (33%) |" in text
    assert "| `a` | wrong | wrong in onnxruntime | at (2, 3): x \\| y |" in text
    assert "| `b` | refused | refused | no |" in text and "`c`" not in text


def test_the_table_of_opsets_counts_each() -> None:
    text = opset_table.text({21: [row("a", "proven"), row("b", "refused", "refused (without it no, with it no)")]})
    assert "| 21 | 2 | 1 | 1 | 0 |" in text
    assert "| 21 | `b` | refused | without it no, with it no |" in text
