"""Probes give no out-of-range positions to operators whose C code does not check them: these would end the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from onnxpatch._torch import dispatch_modes, kernel_checks
from onnxpatch._torch.dispatch_modes import CountedRun
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.probe import Budget
from onnxpatch.verification.reference import Reference
from tests.child import run_script
from tests.layers import Computes

pytestmark = pytest.mark.exports

T = torch.tensor
X = torch.randn(6, 2)
PIVOTS = T([[1, 2, 3], [1, 2, 3]], dtype=torch.int32)
EYES, RIGHT = torch.eye(3).repeat(2, 1, 1), torch.randn(2, 3, 1)
IN_CHILD = """
import torch, onnxpatch
from tests.layers import Computes
solve = Computes(lambda a, p, b: torch.linalg.ldl_solve(a, p, b)).eval()
args = torch.eye(3).repeat(2, 1, 1), torch.tensor([[1, 2, 3], [1, 2, 3]], dtype=torch.int32), torch.randn(2, 3, 1)
try:
    onnxpatch.export(solve, args, "unused.onnx", exporter="trace")
except onnxpatch.ExportError as error:
    print("refused", "linalg_ldl_solve" in str(error))
"""


def test_an_export_does_not_end_the_process() -> None:
    child = run_script(IN_CHILD, seconds=300)
    assert (child.returncode, child.stdout.split()) == (0, ["refused", "True"]), child.stderr[-500:]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: torch.linalg.ldl_solve(EYES, -PIVOTS, RIGHT), "linalg_ldl_solve"),
        (lambda: torch.linalg.ldl_solve(EYES, PIVOTS + 1, RIGHT), "linalg_ldl_solve"),
        (lambda: torch.segment_reduce(X, "sum", offsets=T([0, 2, 7])), "segment_reduce"),
        (lambda: torch.segment_reduce(X, "sum", lengths=T([5, 4]), unsafe=True), "segment_reduce"),
        (lambda: F.embedding_bag(T([0, 5]), X, T([0, 2, 1])), "embedding_bag_forward_only"),
        (lambda: F.embedding_bag(T([0, 6]), X, T([0]), mode="max"), "embedding_bag_forward_only"),
        (lambda: F.embedding_bag(T([0, 5]), X, T([])), "embedding_bag_forward_only"),
        (lambda: F.embedding_bag(T([0, 5]), X, T([0]), include_last_offset=True), "embedding_bag_forward_only"),
        (lambda: _ctc(T([[1, 2, 5], [1, 2, 3]])), "_ctc_loss"),
        (lambda: _ctc(T([[1, 2, -3], [1, 2, 3]])), "_ctc_loss"),
        (lambda: torch._pack_padded_sequence(X[:, None], T([7]), False), "_pack_padded_sequence"),
        (lambda: torch.native_batch_norm(X, None, None, X[:3, 0], X[:3, 1], False, 0.1, 1e-5), "native_batch_norm"),
    ],
)
def test_positions_outside_are_refused(call: Callable[[], Any], says: str) -> None:
    with CountedRun(), pytest.raises(IndexError, match=f"{says} got positions outside of its operands"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.linalg.ldl_solve(EYES, PIVOTS.flip(-1), RIGHT),
        lambda: torch.linalg.ldl_solve(EYES, T([[-2, -2, 3]] * 2, dtype=torch.int32), RIGHT),
        lambda: torch.segment_reduce(X, "sum", offsets=T([0, 2, 6])),
        lambda: torch.segment_reduce(X, "sum", lengths=T([2, 4])),
        lambda: F.embedding_bag(T([0, 5]), X, T([0, 0, 2]), mode="mean"),
        lambda: _ctc(T([[1, 2, 4], [1, 0, 3]])),
        lambda: torch._pack_padded_sequence(X[:, None], T([6]), False),
        lambda: torch.native_batch_norm(X, None, None, X[0].abs(), X[1].abs(), False, 0.1, 1e-5),
    ],
)
def test_positions_inside_are_taken(call: Callable[[], Any]) -> None:
    want = call()
    with CountedRun():
        torch.testing.assert_close(call(), want, equal_nan=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda at: X.gather(0, at[:, None]),
        lambda at: X.index_select(1, at),
        lambda at: X.index_add(0, at, X[:2]),
        lambda at: X.index_copy(0, at, X[:2]),
        lambda at: X.index_fill(1, at, 2.0),
        lambda at: X.scatter(0, at[:, None], 1.0),
        lambda at: X.clone().scatter_add_(0, at[:, None], X),
        lambda at: X.scatter_reduce(0, at[:, None], X, "amax"),
        lambda at: X.take(at),
        lambda at: X.put(at, X[:1, :2].reshape(-1)),
        lambda at: X[at],
        lambda at: X[:, at],
        lambda at: X[X[:, 0] > -9.0][:, at],
        lambda at: X[None][:, at, T([0, 1])],
        lambda at: X.index_put((at, at * 0), X[0, 0]),
        lambda at: torch.Tensor.__setitem__(X.clone(), (slice(None), at), 1.0),
        lambda at: F.embedding(at, X),
        lambda at: F.nll_loss(X[:2], at),
        lambda at: F.cross_entropy(X.T[None].repeat(2, 1, 1)[..., :1], at[:, None], ignore_index=-3),
        lambda at: F.one_hot(at, 3),
        lambda at: torch.repeat_interleave(X[:2], at, dim=0),
        lambda at: F.binary_cross_entropy(at.float() / 2, X[0, :2].sigmoid()),
    ],
)
def test_where_a_gpu_would_be_lost_positions_are_checked_as_on_the_cpu(
    call: Callable[[Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_modes, "_is_on_cpu", lambda args: False)
    accepted = []
    for place in range(-14, 15):
        try:
            call(T([0, place]))
            accepted.append(place)
        except Exception:
            pass
    for place in range(-14, 15):
        found = ""
        try:
            with CountedRun():
                call(T([0, place]))
        except Exception as error:
            found = str(error)
        assert (not found) == (place in accepted), (place, found)
    assert 0 < len(accepted) < 29


def test_an_example_that_reaches_such_an_operator_is_probed_within_its_operands() -> None:
    model = Computes(lambda x, o: torch.segment_reduce(x, "sum", offsets=o) * 1.0).eval()
    reference = Reference(model, Inputs(model, (X, T([0, 2, 6]))), [], Budget())
    assert all(int(o.min()) >= 0 and int(o.max()) <= 6 for o in (probe.values[1] for probe in reference.probes))
    assert len(reference.probes) > 1


def _ctc(targets: Tensor) -> Tensor:
    scores = torch.zeros(10, 2, 5).log_softmax(-1)
    return torch.nn.functional.ctc_loss(scores, targets, T([10, 10]), T([3, 3]))


MAPS, SIX = torch.randn(2, 6, 5, 4), torch.ones(6)
ATEN = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("operator", "args"),
    [
        (ATEN.addmm.default, (torch.ones(8), torch.ones(4, 6), torch.ones(6, 8))),
        (ATEN.native_layer_norm.default, (MAPS, [5, 4], None, None, 1e-5)),
        (ATEN.native_batch_norm.default, (MAPS, SIX, SIX, SIX, SIX, True, 0.1, 1e-5)),
        (ATEN.native_group_norm.default, (MAPS, SIX, SIX, 2, 6, 20, 3, 1e-5)),
        (ATEN._scaled_dot_product_flash_attention_for_cpu.default, (MAPS, MAPS, MAPS)),
    ],
)
def test_bytes_that_have_a_formula_are_those_of_the_operators_own_rule(operator: Any, args: Any, dtype: Any) -> None:
    given = [one.to(dtype) if isinstance(one, Tensor) else one for one in args]
    made = operator(*given)
    found = sum(one.nbytes for one in (made if isinstance(made, tuple) else (made,)) if isinstance(one, Tensor))
    assert found <= kernel_checks.result_bytes(operator, given, {}) <= 1.1 * found
