"""Large files without their weights in memory: what is read and written is the same model."""

import contextlib
import json
import sys

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import onnxpatch
from benchmarks.memory import peak
from onnxpatch.errors import InputError
from onnxpatch.onnxfile import mapped_weights
from onnxpatch.onnxfile.editing import edited
from onnxpatch.onnxfile.mapped_weights import take_in, weigh, without_weights
from onnxpatch.onnxfile.runtime import Graph

pytestmark = pytest.mark.exports


def model(weights):
    arrays = [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(weights)]
    nodes = [helper.make_node("Add", ["x" if i == 0 else f"y{i}", f"w{i}"], [f"y{i + 1}"]) for i in range(len(weights))]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", f"y{len(weights)}")]
    made = helper.make_model(helper.make_graph(nodes, "g", value[:1], value[1:], arrays))
    made.opset_import[0].version, made.ir_version = 18, 9
    made.metadata_props.add(key="a", value="b" * 300)
    return made


WEIGHTS = [np.random.rand(5000).astype(np.float32), np.ones(1, np.float32), np.random.rand(5000).astype(np.float32)]


def test_weights_stay_in_the_file_and_come_back(tmp_path, monkeypatch):
    file, whole = tmp_path / "m.onnx", model(WEIGHTS)
    onnx.save(whole, file)
    small = without_weights(file)
    assert len(small) < 5000
    (tmp_path / "small.onnx").write_bytes(small)
    assert onnx.load(tmp_path / "small.onnx").graph.initializer[0].raw_data == whole.graph.initializer[0].raw_data
    taken = onnx.load(tmp_path / "small.onnx")
    assert [numpy_helper.to_array(t).tolist() for t in taken.graph.initializer] == [w.tolist() for w in WEIGHTS]
    x = np.zeros(5000, np.float32)
    expected = Graph(file).run({"x": x})[0]
    monkeypatch.setattr(mapped_weights, "LARGE", 1 << 10)
    monkeypatch.setattr("onnxpatch.onnxfile.runtimes.onnxruntime.LARGE", 1 << 10)
    mapped = Graph(file)
    assert not mapped.proto.graph.initializer[0].raw_data
    assert np.array_equal(mapped.run({"x": x})[0], expected)


def test_weights_in_another_file_are_taken_in(tmp_path):
    file, whole = tmp_path / "m.onnx", model(WEIGHTS)
    onnx.save(model(WEIGHTS), file, save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    assert weigh(file) > 40_000
    take_in(file, "m.onnx.data")
    assert [one.name for one in tmp_path.iterdir()] == ["m.onnx"]
    found = onnx.load(file)
    assert [numpy_helper.to_array(t).tolist() for t in found.graph.initializer] == [w.tolist() for w in WEIGHTS]
    for one in (found, whole):
        del one.graph.initializer[:]
    assert found == whole


def test_a_large_file_is_edited_without_its_weights(tmp_path, monkeypatch):
    file = tmp_path / "m.onnx"
    onnx.save(model(WEIGHTS), file)
    monkeypatch.setattr(mapped_weights, "LARGE", 1 << 10)
    with edited(file) as proto:
        assert not proto.graph.initializer[0].raw_data
        proto.graph.name = "another"
    expected = model(WEIGHTS)
    expected.graph.name = "another"
    found = onnx.load(file)
    assert [one.name for one in tmp_path.iterdir()] == ["m.onnx"]
    for one in (found, expected):
        one.graph.initializer.sort(key=lambda tensor: tensor.name)
    assert [t.raw_data for t in found.graph.initializer] == [t.raw_data for t in expected.graph.initializer]
    del found.graph.initializer[:], expected.graph.initializer[:]
    assert found == expected


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_bytes_that_are_no_model_are_refused_or_read(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "fuzz.onnx"
    file.write_bytes(content)
    with contextlib.suppress(InputError):
        without_weights(file)


class Weighty(nn.Module):
    """A weight that two layers share, one that is folded, a table of whole numbers, and weights read in a branch."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        self.layers[2].weight = self.layers[0].weight
        self.transposed = nn.Parameter(torch.randn(64, 64))
        self.register_buffer("table", torch.arange(1024).view(16, 64))
        self.narrow = nn.Parameter(torch.randn(64, 64).half())

    def forward(self, x):
        y = self.layers(x) @ self.transposed.t()
        return y + self.table[3] if x.sum() > 0 else y @ self.narrow.float()


def treated_as_large(monkeypatch):
    places = ("exporters.dynamo", "exporters.torchscript", "onnxfile.mapped_weights", "onnxfile.runtimes.onnxruntime")
    for place in places:
        monkeypatch.setattr(f"onnxpatch.{place}.LARGE", 1 << 10)


def arrays(file):
    return {one.name: numpy_helper.to_array(one).tolist() for one in onnx.load(file).graph.initializer}


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("exporter", ["dynamo", "trace", "script"])
def test_an_export_of_large_weights_is_the_same_file(tmp_path, monkeypatch, external, exporter):
    net, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval(), torch.rand(2, 64)
    options = dict(exporter=exporter, dynamic_shapes={"input": {0: "b"}})
    onnxpatch.export(net, (x,), tmp_path / "small.onnx", **options)
    treated_as_large(monkeypatch)
    assert onnxpatch.export(net, (x,), tmp_path / "large.onnx", external_data=external, **options).ok
    files = sorted(one.name for one in tmp_path.iterdir())
    assert files == ["large.onnx", *(["large.onnx.data"] if external else []), "small.onnx"]
    assert arrays(tmp_path / "small.onnx") == arrays(tmp_path / "large.onnx")
    assert len(onnx.load(tmp_path / "large.onnx", load_external_data=False).graph.input) == 1


@pytest.mark.parametrize("external", [False, True])
def test_weights_that_are_shared_folded_and_read_in_a_branch(tmp_path, monkeypatch, external):
    net, x = Weighty().eval(), torch.rand(2, 64)
    options = dict(exporter="trace", dynamic_shapes={"x": {0: "b"}}, branches=True)
    assert onnxpatch.export(net, (x,), tmp_path / "small.onnx", **options).ok
    treated_as_large(monkeypatch)
    assert onnxpatch.export(net, (x,), tmp_path / "large.onnx", external_data=external, **options).ok
    assert arrays(tmp_path / "small.onnx") == arrays(tmp_path / "large.onnx")
    onnx.checker.check_model(str(tmp_path / "large.onnx"), full_check=True)
    for value in (x, -x):
        found = onnxpatch.Session(tmp_path / "large.onnx")(value)
        assert torch.allclose(torch.as_tensor(found), net(value), atol=1e-2)


@pytest.mark.parametrize("option", [dict(export_params=False), dict(keep_initializers_as_inputs=True)])
def test_weights_that_the_caller_wants_elsewhere(tmp_path, monkeypatch, option):
    net, x = nn.Sequential(nn.Linear(64, 64)).eval(), torch.rand(2, 64)
    treated_as_large(monkeypatch)
    onnxpatch.export(net, (x,), tmp_path / "m.onnx", exporter="trace", check=False, **option)
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert len(graph.input) == 3 and len(graph.initializer) == (0 if "export_params" in option else 2)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize("kit", ["checked", "beside"])
@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_memory_of_an_export_stays_below_1_6_times_the_weights(kit, exporter):
    assert peak(exporter, kit, 500) < 1.6


@pytest.mark.slow  # seconds of processor time for hundreds of MB
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_weights_in_a_safetensors_file_are_never_whole_in_memory():
    # Under trace, torch's inference of shapes takes 18 times the buffer that is indexed.
    assert peak("dynamo", "streamed", 300) < 0.9


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last.weight = self.first.weight
        self.register_buffer("table", torch.rand(4))

    def forward(self, x):
        return self.last(self.first(x) + self.table)


def on_meta(where, of=Tied, index=False):
    """(the model, the same on the meta device, the file with its weights); index: two files and their index."""
    from safetensors.torch import save_file

    made = of().eval()
    state = {name: one for name, one in made.state_dict().items() if name != "last.weight"}
    with torch.device("meta"):
        empty = of().eval()
    if not index:
        save_file(state, where / "m.safetensors")
        return made, empty, where / "m.safetensors"
    names = {name: f"{number % 2}.safetensors" for number, name in enumerate(state)}
    for file in ("0.safetensors", "1.safetensors"):
        save_file({name: one for name, one in state.items() if names[name] == file}, where / file)
    (where / "m.json").write_text(json.dumps({"weight_map": names}))
    return made, empty, where / "m.json"


@pytest.mark.parametrize("index", [False, True])
def test_a_model_on_the_meta_device_is_exported_with_the_weights_of_a_file(tmp_path, index):
    made, empty, file = on_meta(tmp_path, index=index)
    x, before = (torch.rand(2, 4),), [id(one) for one in (*empty.parameters(), *empty.buffers())]
    assert onnxpatch.export(empty, x, tmp_path / "m.onnx", weights=file, exporter="trace", max_probes=3).ok
    assert [id(one) for one in (*empty.parameters(), *empty.buffers())] == before and empty.table.is_meta
    assert empty.last.weight is empty.first.weight and "last" not in vars(empty)
    assert onnxpatch.verify(tmp_path / "m.onnx", made, x, max_probes=3).ok


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder, empty: (empty, folder / "none.safetensors"), "is no .safetensors file"),
        (lambda folder, empty: (empty, folder / "m.onnx"), "is no .safetensors file"),
        (lambda folder, empty: (Tied().eval(), folder / "m.safetensors"), "weights= is for a model on the meta device"),
        (
            lambda folder, empty: (empty.half(), folder / "m.safetensors"),
            r"first.weight is torch.float16 \[4, 4\] in Tied",
        ),
        (
            lambda folder, empty: (nn.ModuleDict({"a": empty}), folder / "m.safetensors"),
            r"has no a.first.weight,\s+which is",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(tmp_path, change, message):
    (tmp_path / "m.onnx").write_bytes(b"none")
    model, file = change(tmp_path, on_meta(tmp_path)[1])
    with pytest.raises(InputError, match=message):
        onnxpatch.export(model, (torch.rand(2, 4),), weights=file)
