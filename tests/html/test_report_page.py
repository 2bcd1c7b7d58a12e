"""The HTML page: self-contained, well formed, and it says what was swapped, where sizes froze and how far off it is."""

from __future__ import annotations

import itertools
import re

import onnx
import pytest
import torch

import onnxpatch
from onnxpatch import html
from onnxpatch.html import content
from onnxpatch.html.comparison import Comparison, _Side, alone, compared_with_plain
from onnxpatch.html.content import tree, within
from onnxpatch.html.drawing import layered, placed
from onnxpatch.html.planned import coloured, pair, source
from onnxpatch.onnxfile import graph
from onnxpatch.results.checks import EXPORTING, AttemptResult, Checked
from tests.html.webpage import Page, barriers, browse, needs_axe, needs_browser, seen, self_contained

pytestmark = pytest.mark.exports


class Net(torch.nn.Module):
    """Silently wrong by itself: the position table is kept as it is at its native size."""

    def __init__(self):
        super().__init__()
        from einops.layers.torch import Rearrange

        self.conv = torch.nn.Conv2d(3, 8, 8, 8)
        self.tokens = Rearrange("b c h w -> b (h w) c")
        self.table = torch.nn.Parameter(torch.randn(1, 8, 4, 4))

    def forward(self, x):
        f, t = self.conv(x), self.table
        if f.shape[-2:] != t.shape[-2:]:
            t = torch.nn.functional.interpolate(t, size=f.shape[-2:], mode="bicubic")
        return self.tokens(f + t)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("page")
    model, args = Net().eval(), (torch.randn(2, 3, 32, 32),)
    asked = {"args": args, "dynamic_shapes": ({0: "b", 2: "h", 3: "w"},), "dynamo": False, "max_probes": 8}
    report = onnxpatch.export(model, f=folder / "net.onnx", **asked)
    made = compared_with_plain(
        model, report, folder / "net.onnx", {k: v for k, v in asked.items() if k != "max_probes"}
    )
    text = html.page(made)
    (folder / "page.html").write_text(text, encoding="utf-8")
    return folder, made, text


def test_the_page_is_well_formed_and_fetches_nothing(exported):
    page = self_contained(exported[2])
    assert {
        "verdict",
        "parity",
        "dimensions",
        "tree",
        "patches",
        "operators",
        "graphs",
        "probes",
        "versions",
    } <= page.ids


def test_it_shows_the_plain_export_wrong_and_the_patched_one_right(exported):
    _, made, text = exported
    plain, patched = made.sides
    assert not plain.ok and patched.ok
    assert '<p class="score bad">wrong at' in text and '<p class="score good">right at' in text
    assert '<span class="chip bad">wrong at some sizes</span>' in text  # right at 65, wrong at 80
    assert text.count('<i class="plain cross"') >= 1  # sizes at which the plain graph does not even run
    assert text.count('<i class="patched"') >= 4
    runs = len(patched.report.checks)
    assert f"right at {runs} of {runs} runs" in text and re.search(r"wrong at \d+ of \d+ runs", text)
    assert "does not run at" in text and text.index("right at") < text.index("wrong at")


def test_it_says_what_the_file_takes_and_how_to_make_it_again(exported):
    text = exported[2]
    rows = text[text.index('id="file"') : text.index('id="parity"')]
    assert "<code>x</code>" in rows and "<code>float32</code>" in rows and '<b class="free">h</b>' in rows
    assert '<pre class="copy">onnxpatch.export(model, ' in text
    assert re.search(r"\d nodes, [\d.]+ [KM]?B", text)


def test_it_names_what_was_swapped_and_why(exported):
    _, made, text = exported
    assert [swap.path for swap in made.plan.swaps] == ["tokens"]
    assert made.plan.swaps[0].patch.name in text
    rows = text[text.index('id="tree"') : text.index('id="patches"')]
    assert '<tr class="swapped"><td style="padding-left: 18px">tokens</td>' in rows


def test_the_graph_of_the_swapped_module_is_drawn_on_both_sides(exported):
    _, made, text = exported
    drawn = text[text.index('id="graphs"') :]
    assert "<code>tokens</code> (swapped)" in drawn
    assert drawn.count('<svg class="graph"') >= 2
    for side in made.sides:
        assert graph.by_module(side.proto)["tokens"], side.title


def test_a_refused_export_still_has_a_page(tmp_path):
    class Refused(torch.nn.Module):
        def forward(self, x):
            return torch.searchsorted(x, x) if x.sum() > 0 else x.nonzero()

    model, args = Refused().eval(), (torch.ones(3),)
    report = onnxpatch.Report("", "Refused", "dynamo", 18)
    made = compared_with_plain(model, report, None, {"args": args, "dynamo": True})
    assert made.sides[0].error
    text = html.page(made)
    assert Page(text).open == []
    assert "refused" in text


def test_a_failures_page_begins_with_what_to_do_and_what_was_tried():
    class Refused(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.eig(x)[0].real

    tried = [AttemptResult("as asked", "trace", 18, verdict="refused", error="no form")] * 2
    check = Checked(EXPORTING, "example", "example", {}, error="no form", status="refused")
    report = onnxpatch.Report("m.onnx", "Refused", "trace", 18, [check], attempts=tried, advice="onnxpatch.doctor(m)")
    text = html.page(Comparison(Refused().eval(), [_Side("m.onnx", report, None)]))
    assert text.index('id="remedy"') < text.index('id="attempts"') < text.index('id="tree"')
    # Nothing was compared: no plot and no rows of it.
    assert 'id="parity"' not in text and 'id="probes"' not in text


def test_a_verified_file_has_a_page_of_its_own(exported):
    folder, made, _ = exported
    text = html.page(alone(made.model, made.result.report, folder / "net.onnx"))
    assert Page(text).open == []
    assert "plain torch.onnx.export" not in text


def test_a_dtype_that_onnx_does_not_know_is_shown_by_its_number(tmp_path):
    value = onnx.helper.make_tensor_value_info("x", 29, [1])
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "g", [value], [value])), tmp_path / "m.onnx")
    text = html.page(alone(torch.nn.ReLU(), onnxpatch.Report("m.onnx", "ReLU"), tmp_path / "m.onnx"))
    assert "type 29" in text


def test_every_output_is_shown_with_its_figures(tmp_path):
    class Pair(torch.nn.Module):
        def __init__(self, by=1.0):
            super().__init__()
            self.by = by

        def forward(self, x):
            return x + 1, x * self.by

    args = (torch.ones(2, 3),)
    onnxpatch.export(Pair().eval(), args, tmp_path / "m.onnx", dynamo=False, output_names=["more", "times"])
    report = onnxpatch.verify(tmp_path / "m.onnx", Pair(2.0).eval(), args)
    text = html.page(alone(Pair(2.0), report, tmp_path / "m.onnx"))
    assert Page(text).open == []
    rows = text[text.index('id="outputs"') :]
    assert "<code>more</code>" in rows and "<code>times</code>" in rows and "2×3" in rows
    assert "[0, 0]: 1.0 for 2.0" in rows
    said = report.table()
    assert "times: relative error 0.5" in said and "first at [0, 0]" in said


def test_names_are_escaped():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return x

    Odd.__name__ = "<script>alert(1)</script>"
    text = html.page(alone(Odd(), onnxpatch.Report("<b>", "x"), "<i>.onnx"))
    assert "<script>" not in text and "<b>" not in text and "<i>" not in text


def test_layers_go_down_and_boxes_do_not_overlap():
    nodes = list("abcdefg")
    edges = [("a", "c"), ("b", "c"), ("c", "d"), ("a", "e"), ("e", "f"), ("d", "f"), ("g", "f")]
    layers = layered(nodes, edges)
    depth = {node: i for i, layer in enumerate(layers) for node in layer}
    assert sorted(depth) == nodes
    assert all(depth[a] < depth[b] for a, b in edges)
    assert depth["g"] == depth["f"] - 1
    left = placed(layers, dict.fromkeys(nodes, 10.0), 4.0)
    for layer in layers:
        places = sorted(left[node] for node in layer)
        assert all(b - a >= 14 for a, b in itertools.pairwise(places))
    assert layered([], []) == []


def test_modules_are_read_off_both_exporters():
    from tests import exporting

    model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), torch.nn.Linear(3, 2))
    for exporter in ("trace", "dynamo"):
        proto = __import__("onnx").load_from_string(exporting.export(model, (torch.ones(1, 3),), exporter))
        assert set(graph.by_module(proto)) == {"0.0", "0.1", "1"}, exporter


def test_containers_count_what_is_in_them(exported):
    _, made, _ = exported
    rows = {row.path: row.nodes for row in tree(made)}
    for i, side in enumerate(made.sides):
        nodes = graph.by_module(side.proto)
        assert rows[""].split(" → ")[i] == str(sum(map(len, nodes.values()))), side.title
    count = {"blocks.0": [1, 2], "blocks.1": [3], "blocksize": [4]}
    assert [within(count, path) for path in ("", "blocks", "blocks.0", "absent")] == [4, 3, 2, 0]


def test_drawings_that_are_left_out_are_named(exported, monkeypatch):
    _, made, _ = exported
    monkeypatch.setattr(content, "_MOST_DRAWN", 1)
    text = html.page(made)
    assert text.count('<svg class="graph"') == len(made.sides)
    assert "more, not drawn" in text


def test_nodes_of_no_module_are_the_roots():
    import onnx

    node = onnx.helper.make_node("Shape", ["x"], ["y"])
    scopes = "['', '_empty_nn_module_stack_from_metadata_hook', 'sym_size_int']"
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    assert graph.module_of(node) == ""


def test_code_of_patches():
    patch = next(one for one in onnxpatch.REGISTRY if one.kind == "function")
    shown = pair(patch)
    assert 'class="k">def' in shown.after
    assert not source(patch.stand_in).startswith("@")
    assert "compiled code" in source(torch.relu)
    assert "&lt;" in coloured("a < b")


@pytest.mark.slow  # pictures, and a browser
@needs_browser
@seen
def test_chromium_shows_the_page_as_it_is_meant(exported, tmp_path, width, dark):
    """The drawings have a size, nothing hangs over the page's edge, dark is dark."""
    script = """
      told.graphs = [...document.querySelectorAll('svg.graph')].filter(s => s.closest('details').open)
        .every(s => s.getBoundingClientRect().height > 30);
      told.texts = [...document.querySelectorAll('svg.graph g')].every(g => {
        const box = g.querySelector('rect').getBBox();
        return [...g.querySelectorAll('text')].every(t => t.getBBox().width <= box.width + 1);
      });
      told.plot = document.querySelectorAll('table.plot i').length > 4;
    """
    told = browse(exported[2], tmp_path, width, dark, script)
    expected = {"width": width, "wide": False, "dark": 2 * dark}
    assert told == {**expected, "graphs": True, "texts": True, "plot": True}


@needs_browser
@needs_axe
@pytest.mark.slow  # a minute and a half each, more on a busy machine
@pytest.mark.parametrize("dark", [False, True])
def test_nobody_is_shut_out(exported, tmp_path, dark):
    assert barriers(exported[2], tmp_path, dark) == []
