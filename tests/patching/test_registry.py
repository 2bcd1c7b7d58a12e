import re
import subprocess
import sys
import threading
import time

import pytest
import torch

import onnxpatch
from onnxpatch.patching.when import resolve


def test_a_name_that_is_taken_is_refused_with_both_places(registry):
    @onnxpatch.patch("a.B", name="twice", why="w", registry=registry)
    class First:
        def forward(self, x): ...

    with pytest.raises(
        onnxpatch.DuplicatePatchError, match=r"(?s)'twice' is declared twice:\s+at .*test_registry.py:\d+ and"
    ):

        @onnxpatch.patch("c.D", name="twice", why="w", registry=registry)
        class Second:
            def forward(self, x): ...


def test_the_same_declaration_run_again_is_no_duplicate(registry):
    def declare():
        @onnxpatch.patch("a.B", name="once", why="w", registry=registry)
        class Layer:
            def forward(self, x): ...

    declare()
    declare()
    assert [patch.name for patch in registry] == ["once"]


@pytest.mark.parametrize("target", ["Rearrange", 3])
def test_a_target_must_be_a_dotted_path(registry, target):
    with pytest.raises(TypeError, match="is not a dotted path"):
        onnxpatch.patch(target, why="w", registry=registry)


def test_targets_are_never_imported():
    assert "turtle" not in sys.modules
    assert resolve("turtle.forward") is None
    assert "turtle" not in sys.modules


def test_resolve_finds_functions_methods_and_what_is_missing():
    assert resolve("torch.nn.functional.interpolate") is torch.nn.functional.interpolate
    assert resolve("torch.Tensor.item") is torch.Tensor.item
    assert resolve("torch.nn.functional.no_such_function") is None


def test_patches_are_found_by_a_walk_and_one_broken_file_is_reported(monkeypatch, tmp_path):
    import onnxpatch.patches

    (tmp_path / "found.py").write_text(
        "from onnxpatch import patch, Registry\nregistry = Registry()\n"
        "@patch('a.B', why='w', name='found', registry=registry)\nclass Found:\n    def forward(self, x): ...\n"
    )
    (tmp_path / "broken.py").write_text("import no_such_library\n")
    monkeypatch.setattr(onnxpatch.patches, "__path__", [str(tmp_path)])
    registry = onnxpatch.Registry(discover=True)
    list(registry)
    assert "found" in sys.modules["onnxpatch.patches.found"].registry
    assert registry.failures == {
        "onnxpatch.patches.broken": "ModuleNotFoundError: No module named 'no_such_library'",
    }
    plan = onnxpatch.plan(torch.nn.Identity(), registry=registry)
    assert "no_such_library" in str(plan)


def test_entry_points_of_other_distributions_add_patches(monkeypatch):
    loaded = []

    class Entry:
        name = "theirs"

        def load(self):
            loaded.append(self.name)

    monkeypatch.setattr(
        "onnxpatch.patching.registry.metadata.entry_points", lambda group: [Entry()] * (group == "onnxpatch.patches")
    )
    list(onnxpatch.Registry(discover=True))
    assert loaded == ["theirs"]


@pytest.mark.parametrize(
    ("conditions", "options", "reason"),
    [
        (dict(when=onnxpatch.When(requires=("torch<2",))), {}, "needs torch<2, found 2"),
        (dict(when=onnxpatch.When(requires=("no-such-distribution>1",))), {}, "which is not installed"),
        (dict(when=onnxpatch.When(exporters=("trace",))), dict(exporter="dynamo"), "only for exporter='trace'"),
        (dict(opset=(20, None)), dict(opset=18), "needs opset 20 or later, not 18"),
        (dict(opset=(None, 17)), dict(opset=18), "works up to opset 17, not 18"),
    ],
)
def test_conditions_that_do_not_hold_are_near_misses_with_their_reason(registry, conditions, options, reason):
    onnxpatch.patch("torch.nn.modules.linear.Identity", why="w", name="p", registry=registry, **conditions)(
        type("StandIn", (), {"forward": lambda self, x: x})
    )
    plan = onnxpatch.plan(torch.nn.Identity(), registry=registry, **options)
    assert not plan.swaps
    assert reason in plan.near_misses[0].reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (dict(exporters=("trace",), requires=("torch>=2",)), "write when=onnxpatch.When(exporters=..., requires=...)"),
        (dict(subclasses=True), "write when=onnxpatch.When(subclasses=...)"),
        (dict(opset=(20, None)), "read running_model().settings.opset"),
        (dict(replaces=True), "onnxpatch.onnx_standin(StandIn)(Class)"),
    ],
)
def test_what_when_has_now_works_as_it_did_and_says_what_to_write(registry, old, new):
    with pytest.warns(DeprecationWarning, match=re.escape(new)) as warned:
        declare = onnxpatch.patch("a.B", why="w", name="p", registry=registry, **old)
    assert warned[0].filename == __file__
    declare(lambda module: module)
    made = registry["p"]
    assert {name: getattr(made if name == "replaces" else made.when, name) for name in old} == old


def test_a_parameter_that_patch_never_had_is_refused(registry):
    with pytest.raises(TypeError, match="unexpected keyword argument 'exporter'"):
        onnxpatch.patch("a.B", why="w", registry=registry, exporter="trace")


def test_no_patch_of_ours_is_declared_in_the_old_way():
    run = "import onnxpatch; assert [*onnxpatch.REGISTRY]; assert not onnxpatch.REGISTRY.failures"
    subprocess.run([sys.executable, "-W", "error:patch(:DeprecationWarning", "-c", run], check=True)


def test_threads_that_read_the_registry_first_at_once_find_all_of_it(monkeypatch):
    registry, begun, loaded, seen = onnxpatch.Registry(discover=True), threading.Event(), [], []

    def load(name, _):
        begun.set()
        time.sleep(0.005)
        loaded.append(name)

    monkeypatch.setattr(registry, "_load", load)
    first = threading.Thread(target=lambda: list(registry))
    first.start()
    assert begun.wait(10)
    list(registry)
    seen += loaded
    first.join()
    assert seen == loaded
