"""`--input` and its relatives: shapes written out, files, containers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from onnxpatch.cli.arrays import read_inputs
from onnxpatch.errors import InputError
from tests.cli.running import run

pytestmark = pytest.mark.exports


@pytest.mark.parametrize("name", ["Ready", "Dummy", "with_args"])
def test_models_that_bring_their_example_need_no_input(place, name):
    done = run("export", f"models.py:{name}", "brought.onnx", "--json")
    assert done.exit_code == 0, done.output
    if name == "Ready":
        assert json.loads(done.stdout)["dimensions"] == {"batch": 2}


def test_inputs_from_files(place):
    np.savez(place / "in.npz", x=np.ones((2, 4), "float32"), other=np.zeros(4, "float32"))
    by_key = run("export", "models.py:Scale", "-i", "x=in.npz", "-i", "bias=in.npz:other", "--dynamic", "x=[B,_]",
                 "--json", "m.onnx")  # fmt: skip
    assert by_key.exit_code == 0, by_key.output
    assert json.loads(by_key.stdout)["dimensions"] == {"B": 2}


def test_inputs_from_safetensors(place):
    from safetensors.torch import save_file

    save_file({"x": torch.ones(3, 4)}, place / "in.safetensors")
    done = run("export", "models.py:Scale", "-i", "in.safetensors", "--json", "m.onnx")
    assert done.exit_code == 0, done.output


def test_a_call_may_be_written_out(place):
    assert run("plan", "models.py:sized(3, bias=True)").exit_code == 0
    assert "only literals" in run("plan", "models.py:sized(open)").stderr


def test_arrays_of_the_other_byte_order(place):
    np.save(place / "other.npy", np.arange(8).reshape(2, 4).astype(">f4"))
    (found,) = read_inputs(["x=other.npy"])
    assert found.value.tolist() == [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]


def test_sizes_of_named_dimensions():
    texts = ["x=float32[B,3,H,W=96]", "attention_mask=int64[B,S]", "ids=int64[B,S]<100"]
    image, mask, tokens = read_inputs(texts)
    assert (tuple(image.value.shape), image.free) == ((2, 3, 224, 96), {0: "B", 2: "H", 3: "W"})
    assert mask.value.tolist() == [[1] * 16] * 2
    assert 1 < tokens.value.max() < 100
    with pytest.raises(InputError, match="B is 3 here and 2 elsewhere"):
        read_inputs([*texts, "y=float32[B=3]"])


def test_inputs_of_one_shape_hold_other_numbers():
    """Or a graph that takes them in another order, or subtracts them, would look right."""
    a, b = (one.value for one in read_inputs(f"{name}=float32[2,4]" for name in "ab"))
    assert not torch.equal(a, b)
    again = read_inputs(["a=float32[2,4]"])[0].value
    assert torch.equal(a, again)  # the same in the next command


def test_files_with_names_of_their_own(place):
    (place / "two.py").write_text(
        "import torch\nclass Minus(torch.nn.Module):\n    def forward(self, a, b): return a - 2 * b\n"
    )
    given = ["two.py:Minus", "-i", "a=float32[2,4]", "-i", "b=float32[2,4]"]
    assert run("export", *given, "--input-names", "p,q", "m.onnx").exit_code == 0
    assert run("verify", "m.onnx", *given, "--input-names", "p,q").exit_code == 0
    turned = run("verify", "m.onnx", *given, "--input-names", "q,p", "--json")
    assert turned.exit_code == 1
    assert {check["status"] for check in json.loads(turned.stdout)["checks"]} == {"wrong"}
    unknown = run("verify", "m.onnx", *given, "--input-names", "p,r")
    assert unknown.exit_code == 2 and "the file's inputs ['p', 'q']" in unknown.stderr


def test_inputs_that_fill_containers(place):
    from onnxpatch.cli.target import _LoadedTarget, example

    class Sum(torch.nn.Module):
        def forward(self, xs, *, scale):
            return sum(xs) * scale["a"]

    call = example(
        _LoadedTarget("Sum", Sum(), None), ["xs.0=float32[B,2]", "xs.1=float32[B,2]", "scale.a=float32[1]"], []
    )
    assert [tuple(x.shape) for x in call.args[0]] == [(2, 2), (2, 2)]
    assert set(call.kwargs["scale"]) == {"a"}
    assert call.dynamic_shapes == {"xs": [{0: "B"}, {0: "B"}], "scale": {"a": None}}
