"""The pages of the doctor and of a plan: self-contained, escaped, and they say where, why and what to do."""

from __future__ import annotations

import dataclasses
import re
import sys

import pytest
import torch

import onnxpatch
from onnxpatch import html
from onnxpatch.html.planned import around, plan_notes, tree_rows
from onnxpatch.patching.plan import NearMiss
from onnxpatch.results.diagnosis import Culprit, Diagnosis, Proposal
from tests.html.webpage import barriers, browse, needs_axe, needs_browser, seen, self_contained

pytestmark = pytest.mark.exports


class Scaled(torch.nn.Module):
    def forward(self, x):
        """Not <b>by</b> the same."""
        return x * 2 if x.shape[1] < 4 else x * 3


class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.ReLU(), Scaled())])

    def forward(self, x):
        return self.blocks[0](x)


class Arranged(torch.nn.Module):
    def __init__(self):
        super().__init__()
        from einops.layers.torch import Rearrange

        self.parts = torch.nn.ModuleList([Rearrange("b c h w -> b (h w) c") for _ in range(8)])

    def forward(self, x):
        return self.parts[0](x)


def bare(text: str) -> str:
    """Without the colouring's elements."""
    return re.sub(r"<[^>]*>", "", text)


@pytest.fixture(scope="module")
def diagnosed():
    model = Nested()
    found = onnxpatch.doctor(model, (torch.ones(2, 3),), dynamic_shapes=({1: "S"},), dynamo=False)
    return found, html.diagnosis_page(model, found)


@pytest.fixture(scope="module")
def made():
    return onnxpatch.plan(Arranged(), exporter="trace", opset=18)


def test_the_doctors_page_names_the_part_and_marks_its_line(diagnosed):
    found, text = diagnosed
    assert {"verdict", "culprits", "tree", "versions"} <= self_contained(text).ids
    assert found.culprits[0].path == "blocks.0.1"
    assert 'id="verdict">wrong<' in text and "<code>blocks.0.1</code>" in text
    marked = [line for line in text.split('<span class="line')[1:] if line.startswith(" at")]
    assert len(marked) == 1
    number = found.culprits[0].source.rpartition(":")[2]
    assert bare("<" + marked[0].split("</pre>")[0]).startswith(f"{number}        return x * 2 if x.shape[1] &lt; 4")


def test_the_doctors_page_says_which_ways_were_tried(diagnosed):
    found, text = diagnosed
    assert any(p.whole for p in found.proposals) and any(not p.tried for p in found.proposals)
    assert '<span class="chip good">tried on the whole model: right</span>' in text
    assert '<span class="chip idle">not tried</span>' in text
    first = text[: text.index('id="culprits"')]
    assert "What makes the whole model export right" in first
    call = "onnxpatch.export(model, args, &#34;model.onnx&#34;, dynamic_shapes=dynamic_shapes, exporter=&#39;trace&#39;"
    assert call in first
    in_a_shell = html.diagnosis_page(Nested(), found, "onnxpatch export net.py:net model.onnx")
    assert '<pre class="copy">onnxpatch export net.py:net model.onnx --exporter trace' in in_a_shell


def test_the_culprit_is_marked_in_the_tree(diagnosed):
    found, text = diagnosed
    tree = text[text.index('id="tree"') :]
    assert '<tr class="culprit"><td style="padding-left: 54px">1</td><td><code>Scaled</code></td>' in tree
    assert f"wrong: {found.culprits[0].construct}" in tree


def test_a_right_models_page_has_no_culprits():
    model = torch.nn.ReLU()
    text = html.diagnosis_page(model, onnxpatch.doctor(model, (torch.ones(2),), dynamo=False))
    assert self_contained(text).ids == {"verdict", "versions", "words"}
    assert 'class="verdict good" id="verdict">right' in text


def test_what_the_doctor_was_told_is_escaped():
    odd = "<script>alert('&')</script>"
    half = Proposal("patch", "x", odd, tried=True, whole=False)
    part = Culprit(f"{odd}", odd, "refused", "trace", odd, f"{odd}.py:3", odd, odd, odd, odd, (odd,), (half,))
    method = dataclasses.replace(part, path="1.table()", proposals=(Proposal("none", "", odd),))
    found = Diagnosis(odd, "trace", 18, "refused", odd, [part, method], versions={odd: odd}, notes=[odd])
    found.dimensions = {odd: 3}
    text = html.diagnosis_page(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU()), found)
    self_contained(text)
    assert "alert(" in text and "<script" not in text
    assert "not enough for the whole model" in text
    assert '<tr class="culprit"><td style="padding-left: 18px">1</td>' in text  # whose method is called directly


def test_lines_around_a_place(tmp_path):
    code = 'def f():\n    """\n    a < b\n    """\n    if 1:\n\n\tpass\n\n\n\n\n'
    (tmp_path / "odd.py").write_text(code)
    lines = around(f"{tmp_path / 'odd.py'}:3")
    assert [line.number for line in lines] == list(range(1, 8))
    assert [line.number for line in lines if line.at] == [3]
    assert "a &lt; b" in lines[2].code and 'class="s' in lines[2].code  # in a string that began above
    assert around(f"{tmp_path / 'odd.py'}:99") == around("absent.py:1") == around("") == around("x") == []


def test_lines_without_pygments(tmp_path, monkeypatch):
    (tmp_path / "plain.py").write_text("\n\nclass A:\n" + "    x = 1 < 2\n" * 9)
    monkeypatch.setitem(sys.modules, "pygments", None)
    lines = around(f"{tmp_path / 'plain.py'}:9")
    assert [(line.number, line.code) for line in lines] == [(n, "x = 1 &lt; 2") for n in range(4, 13)]


def test_the_plans_page_shows_what_would_be_swapped(made):
    text = html.plan_page(made)
    assert {"verdict", "tree", "patches", "functions", "versions"} <= self_contained(text).ids
    assert "8 modules swapped" in text and "for trace, opset 18" in text
    assert text.count('<tr class="swapped">') == 8
    patches = text[text.index('id="patches"') : text.index('id="tree"')]
    assert "einops-rearrange" in patches and "parts.5 and 2 more" in patches
    assert "class _RearrangeStandIn" in bare(patches) and "class Rearrange:" in bare(patches)
    watched = text[text.index('id="functions"') :]
    others = watched[watched.index('<details class="idle">') :].count("<tr><td>")
    assert watched.count("<details>") + others == len(made.functions) > 10


def test_the_plans_page_says_what_is_left_alone():
    model = Arranged()
    for part in model.parts:
        onnxpatch.keep(part)
    made = onnxpatch.plan(model)
    made.near_misses.append(NearMiss(None, "broken", "could not be loaded: <b>"))
    made.findings.append("odd: <i>")
    text = html.plan_page(made)
    self_contained(text)
    assert '<span class="big">9</span> places where a patch fits and is left out' in text
    left = text[text.index('id="left"') : text.index("</table>", text.index('id="left"'))]
    assert left.count("opted out by keep()") == 1 and "parts.5 and 2 more" in left
    assert "could not be loaded: &lt;b&gt;" in left and "odd: &lt;i&gt;" in text
    assert text.count('<tr class="near">') == 8


def test_every_patch_of_a_module_is_told_in_its_row(made):
    notes = plan_notes(dataclasses.replace(made, swaps=[], near_misses=[NearMiss("parts.1", n, "no") for n in "ab"]))
    assert notes == {"parts.1": ("near", "a: no; b: no")}
    assert {row.path for row in tree_rows(made.model, notes)} == {"", "parts", "parts.1"}
    assert plan_notes(None) == {}


def test_pages_are_written(diagnosed, made, tmp_path):
    html.write_diagnosis(tmp_path / "d.html", Nested(), diagnosed[0])
    html.write_plan(tmp_path / "p.html", made)
    assert (tmp_path / "d.html").read_text(encoding="utf-8") == diagnosed[1]
    assert "8 modules swapped" in (tmp_path / "p.html").read_text(encoding="utf-8")


@pytest.mark.slow  # pictures, and a browser
@needs_browser
@seen
def test_chromium_shows_the_doctors_page_as_it_is_meant(diagnosed, tmp_path, width, dark):
    """The mark goes over the whole width of its box and is another colour than the box."""
    script = """
      const at = document.querySelector('.line.at'), box = at.closest('.code');
      told.across = at.getBoundingClientRect().width >= box.clientWidth - 2;
      told.marked = shade(at) !== shade(box);
    """
    told = browse(diagnosed[1], tmp_path, width, dark, script)
    assert told == {"width": width, "wide": False, "dark": 2 * dark, "across": True, "marked": True}


@pytest.mark.slow  # pictures, and a browser
@needs_browser
@seen
def test_chromium_shows_the_plans_page_as_it_is_meant(made, tmp_path, width, dark):
    """Open details and all: nothing hangs over the edge."""
    opened = html.plan_page(made).replace("<details>", "<details open>")
    assert browse(opened, tmp_path, width, dark, "") == {"width": width, "wide": False, "dark": 2 * dark}


@needs_browser
@needs_axe
@pytest.mark.slow  # a minute and a half each, more on a busy machine
@pytest.mark.parametrize("dark", [False, True])
def test_nobody_is_shut_out(diagnosed, made, tmp_path, dark):
    assert barriers(diagnosed[1], tmp_path, dark) == []
    assert barriers(html.plan_page(made), tmp_path, dark) == []
