import inspect

import pytest
import torch

import onnxpatch
from onnxpatch import missing, op
from onnxpatch.patching.op_rows import spellings
from onnxpatch.patching.proof import integers, numbers, pairs, positive, shares
from onnxpatch.prove import prove


def test_a_name_stands_for_each_spelling_and_a_path_for_itself():
    assert spellings("logit") == ("torch.logit", "torch.Tensor.logit", "torch.special.logit")
    assert spellings("linalg.diagonal") == ("torch.linalg.diagonal",)
    assert spellings("no_such_function") == ("torch.no_such_function",)


@pytest.mark.exports
def test_a_row_is_a_patch_with_a_proof_that_calls_every_spelling(registry):
    op(
        "frac",
        to=lambda x: x - torch.sign(x) * torch.floor(x.abs()),
        why=missing("aten::frac", exporters=("trace",)),
        tries=numbers,
        registry=registry,
    )
    row = registry["frac"]
    assert row.targets == ("torch.frac", "torch.Tensor.frac")
    assert row.why == "Exporting the operator 'aten::frac' to ONNX is not supported"
    assert row.when.exporters == row.proof.fails == ("trace",)
    assert row.proof.specs(row.proof.examples()) == ({0: "d0", 1: "d1"},)
    assert len(row.proof.build()(torch.randn(3))) == 2
    outcome = prove(row, "trace")
    assert outcome.status == "proven", outcome.sentence
    assert "aten::frac" in outcome.before


@pytest.mark.exports
def test_a_row_that_is_wrong_is_not_proven(registry):
    op("frac", to=lambda x: x * 2, why=missing("aten::frac", exporters=("trace",)), tries=numbers, registry=registry)
    assert prove(registry["frac"], "trace").status == "failed"


@pytest.mark.exports
def test_the_error_of_another_operator_proves_nothing(registry):
    @op("frac", why=missing("aten::fmod", exporters=("trace",)), tries=numbers, registry=registry)
    def frac(input):
        return input - torch.sign(input) * torch.floor(input.abs())

    assert prove(registry["frac"], "trace").status == "unexplained"


def test_the_function_gets_the_arguments_by_name_and_the_original_where_it_asks_for_it(registry):
    seen = []

    def row(name, function):
        op(name, why="w", reason="r", tries=pairs, to=function, registry=registry)

    row("add", lambda input, other, *, alpha=1: seen.append((other, alpha)) or input * other)
    row("sub", lambda original, input, other: seen.append(original) or NotImplemented)

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.sub(torch.add(other=2, input=x, alpha=3), 1)

    with onnxpatch.patched(model := Model(), registry=registry):
        torch.jit.trace(model, torch.ones(2), check_trace=False)
    assert seen == [(2, 3), torch.sub]


def test_a_lambda_is_called_by_the_name_of_its_patch(registry):
    op("hypot", to=lambda x, y: x, why="w", reason="r", tries=pairs, registry=registry)
    assert registry["hypot"].stand_in.__name__ == "hypot"
    assert "to=lambda" in inspect.getsource(inspect.unwrap(registry["hypot"].stand_in))
    assert "test_op_rows.py" in registry["hypot"].declared_at


def test_a_case_is_a_function_or_makes_a_module(registry):
    for name, case in (("sin", lambda x: torch.sin(x)), ("cos", torch.nn.Identity), ("tan", lambda: torch.nn.ReLU())):
        op(name, to=lambda x: x, why="w", reason="r", tries=numbers, case=case, registry=registry)
    kinds = [type(patch.proof.build()).__name__ for patch in registry]
    assert kinds == ["Computing", "Identity", "ReLU"]


def test_a_row_without_a_name_or_inputs_is_refused(registry):
    with pytest.raises(TypeError, match="the name of a function"):
        op(why="w", tries=numbers, registry=registry)
    with pytest.raises(TypeError, match=r"(?s)'sin'.*tries="):
        op("sin", why="w", registry=registry)


def test_inputs_of_ready_tries_have_what_they_say():
    assert numbers(2, 5)[0, 0] == 0 and numbers(2, 5).min() < 0
    assert torch.equal(*(one[:, -1] for one in pairs(2, 5)))
    assert positive(9, 9).min() > 0 and shares(9, 9).min() > 0 and shares(9, 9).max() < 1
    assert not integers(2, 5).is_floating_point()


def test_axes_with_equal_sizes_have_one_name_and_fixed_ones_none():
    inputs = [(torch.ones(b, 3, n), [torch.ones(n, 7), torch.ones(2)], 5) for b, n in ((2, 5), (3, 9))]
    proof = onnxpatch.Proof(torch.nn.Identity, inputs)
    assert proof.specs(inputs) == ({0: "d0", 2: "d1"}, [{0: "d1"}, None], None)
    with pytest.raises(ValueError, match="different structures"):
        proof.specs([(torch.ones(2),), ([torch.ones(2)],)])
    assert proof.specs(inputs[:1]) is None
