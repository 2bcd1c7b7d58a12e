"""Names from files and models: nothing in them acts on a terminal, in Markdown or on a page, and nothing hides."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import onnxpatch
from onnxpatch.cli.app import app
from onnxpatch.messages.text import WIDTH, in_lines, markdown, one_line, table, visible
from onnxpatch.results.diagnosis import Culprit, Diagnosis
from tests.onnxfile.hostile import STAMP, with_metadata

pytestmark = pytest.mark.exports

EVIL = "a\x1b]0;owned\x07\x1b[31m\u202eb\x9b\r\nright: all is well<script>alert(1)</script>|`c`[l](http://x)\u200b"
NO_FILE = "m\x1b[31m\u202e<script>.onnx"
X = torch.tensor([[1.0, -1.0], [2.0, 3.0]])


def acts(text: str) -> list[str]:
    """The characters that a terminal would not simply show."""
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return [char for char in text if unicodedata.category(char) in hidden and char != "\n"]


class Wrong(torch.nn.Module):
    def forward(self, x):
        return x * 3


def evil_class() -> torch.nn.Module:
    return type(EVIL, (Wrong,), {})().eval()


def evil_file(place: Path) -> Path:
    """The input, the output, the dimension, the node, its doc string and the stamp all bear the name."""
    model = with_metadata(STAMP | {"onnxpatch.exporter": EVIL}, inputs=EVIL, output=EVIL + "2")
    del model.graph.output[1:], model.graph.node[1:]
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = EVIL
    model.graph.name = model.graph.doc_string = model.doc_string = EVIL
    node = model.graph.node[0]
    node.name, node.doc_string = EVIL, f'File "{EVIL}", line 1, in f\n  {EVIL}'
    onnx.save(model, str(place / NO_FILE))
    return place / NO_FILE


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> onnxpatch.Report:
    made = onnxpatch.verify(evil_file(tmp_path_factory.mktemp("evil")), evil_class(), (X,))
    assert not made.ok
    made.plan.append({"path": EVIL, "class": EVIL, "patch": EVIL})
    return made


def test_the_text_of_a_report(report: onnxpatch.Report) -> None:
    assert not acts(str(report))
    assert not any(line.startswith("right: all is well") for line in str(report).splitlines())
    assert r"\x1b[31m\u202e" in str(report)


def test_markdown_of_a_report(report: onnxpatch.Report) -> None:
    told = report.to_markdown()
    assert not acts(told) and "<script" not in told and "&lt;script&gt;" in told
    rows = [line for line in told.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    assert not re.search(r"(?<!\\)[`\[]", told)


def test_json_of_a_report(report: onnxpatch.Report) -> None:
    assert report.to_json().isascii() and not acts(report.to_json())


def test_pages(report: onnxpatch.Report, tmp_path: Path) -> None:
    from onnxpatch import html

    html.write_report(tmp_path / "r.html", evil_class(), report, evil_file(tmp_path))
    html.write_plan(tmp_path / "p.html", onnxpatch.plan(evil_class()))
    html.write_diagnosis(tmp_path / "d.html", evil_class(), diagnosis())
    for name in "rpd":
        page = (tmp_path / f"{name}.html").read_text()
        assert not acts(page) and "<script>alert" not in page and "&lt;script&gt;alert" in page


def diagnosis() -> Diagnosis:
    culprit = Culprit(EVIL, EVIL, "refused", "dynamo", EVIL, EVIL, EVIL, EVIL, EVIL, EVIL, (EVIL,))
    return Diagnosis(EVIL, "dynamo", 18, "refused", EVIL, [culprit], notes=[EVIL], versions={"torch": EVIL})


def test_diagnoses_and_plans() -> None:
    made = onnxpatch.plan(torch.nn.Sequential(evil_class()))
    made.findings.append(EVIL)
    for text in (str(diagnosis()), diagnosis().to_markdown(), str(made)):
        assert not acts(text) and r"\x1b" in text
        assert not any(line.strip().startswith("right: all") for line in text.splitlines())
    assert "<script" not in diagnosis().to_markdown()


def test_errors(tmp_path: Path) -> None:
    for error in (onnxpatch.InputError(EVIL), onnxpatch.RunError(EVIL), onnxpatch.VerificationError(EVIL)):
        assert not acts(str(error)) and error.args[0] == EVIL
    with pytest.raises(onnxpatch.InputError) as caught:
        onnxpatch.verify(tmp_path / EVIL.replace("/", ""), Wrong(), (X,))
    assert not acts(str(caught.value))


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    evil_file(tmp_path)
    (tmp_path / "models.py").write_text(
        f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x * 3\n"
        f"Evil = type({EVIL!r}, (Model,), {{}})\n"
    )
    given = ["models.py:Evil", "-i", "x=float32[2,2]"]
    for asked in (
        ["verify", NO_FILE, *given], ["verify", NO_FILE, *given, "--markdown"], ["plan", "models.py:Evil"],
        ["verify", EVIL, *given], ["verify", "m.onnx", "models.py:Evil", "-i", EVIL], ["plan", EVIL],
        ["export", "models.py:Evil", "-i", "y=float32[2,2]", "m.onnx"], ["list", EVIL], ["ops", EVIL],
        ["plan", "--" + EVIL],
    ):  # fmt: skip
        done = CliRunner().invoke(app, asked, prog_name="onnxpatch")
        assert not acts(done.output), (asked, acts(done.output))
        assert done.exit_code in (0, 1, 2), done.output


@given(st.text())
def test_whatever_the_text(text: str) -> None:
    assert not acts(visible(text).replace("\t", "")) and visible(visible(text)) == visible(text)
    assert not acts(one_line(text)) and "\n" not in one_line(text) and "\n" not in markdown(text)
    assert not re.search(r"<|>|(?<!\\)[|`\[\]*]", markdown(text).replace(r"\\", ""))


def test_plain_text_stays_as_it_is() -> None:
    for text in ("node_add_5: relative error 0.3", "größe × 2 – 名前", "a\n  b\tc"):
        assert visible(text) == text


def test_no_line_is_over_160_and_what_to_do_begins_one() -> None:
    found = "the arguments of this model do not fit what its forward takes, (a: b), since there are three of them"
    said = in_lines(f"{found}: give two of them, or write a wrapper that takes three\n  " + "x y " * 60)
    first, second, *rest = said.split("\n")
    assert (first, second) == (f"{found}:", "    give two of them, or write a wrapper that takes three")
    assert rest and all(len(line) <= WIDTH for line in rest)
    assert one_line(in_lines(found * 4)) == found * 4
    assert in_lines("short: do this") == "short: do this" and in_lines("a" * 500) == "a" * 500


@pytest.mark.parametrize("wide", [False, True])
def test_a_reason_that_has_no_room_goes_on_below(wide: bool) -> None:
    names = ["n" * 30, "t" * 90, "w" * 70] if wide else ["name", "target", "when"]
    said = table(("name", "target", "when", "why"), [[*names, "because it is so, " * 20], [*names, ""]])
    assert max(map(len, said.splitlines())) <= WIDTH and "because it is so" in said
    assert " ".join(said.split()).count("because it is so,") == 20
