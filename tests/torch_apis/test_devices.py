"""What a GPU needs of the kit, without one: torch's fake tensors may be on a GPU that the machine does not have, and
tensors on the meta device are on another device than the CPU's."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from onnxpatch._torch.function_modes import device_of
from onnxpatch._torch.operator_tables import rewritten
from onnxpatch.control_flow.tape import Rebinding, TorchCall
from onnxpatch.formulas.nodes import placed
from onnxpatch.messages.user_code import said_by
from tests.layers import Computes
from tests.torch_apis.test_decompositions import torchlib


def test_new_tensors_are_on_the_gpu_where_an_argument_is() -> None:
    with FakeTensorMode():
        x, y = torch.empty(2, device="cuda"), torch.empty(2)
        with device_of([3, [y, x]]):
            assert torch.arange(3).device.type == torch.tensor([1.0]).device.type == "cuda"
            assert torch.zeros(3, device="cpu").device.type == "cpu"
        with device_of([y, None]):
            assert torch.arange(3).device.type == "cpu"


def test_a_repeated_call_makes_its_tensor_on_the_device_of_the_first() -> None:
    with FakeTensorMode():
        made = torch.empty(3, dtype=torch.int64, device="cuda")
        binding = Rebinding()
        binding.run([TorchCall(torch.arange, (3,), {}, made)])
        assert binding(made) is not made and binding(made).device.type == "cuda"


def test_the_result_of_an_onnx_node_is_placed_where_its_input_is() -> None:
    on_cpu, elsewhere = torch.ones(2), torch.ones(2, device="meta")
    assert placed(on_cpu, on_cpu) is on_cpu
    assert placed(on_cpu, elsewhere).device.type == "meta"


def test_a_move_to_another_device_stays_one() -> None:
    model = Computes(lambda x: x + torch.arange(x.shape[0], device="cpu").float().to(x.device))
    program = torch.export.export(model, (torch.ones(3, device="meta"),), strict=False)
    assert rewritten(program, torchlib())
    moved = [node for node in program.graph.nodes if node.target is torch.ops.aten._to_copy.default]
    assert [str(node.kwargs.get("device")) for node in moved][-1] == "meta"


def test_an_error_in_a_script_is_told_without_the_scripts_own_lines() -> None:
    @torch.jit.script
    def product(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    try:
        product(torch.ones(2, 3))
    except RuntimeError as error:
        assert said_by(error) == "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"
