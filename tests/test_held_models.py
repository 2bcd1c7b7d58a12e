"""export of models as people hold them: programs, functions, methods, wrappers, offloaded weights, other modes."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # declares the operators
from torch import nn

import onnxpatch
from tests.fingerprint import fingerprint

pytestmark = pytest.mark.exports

QUICK = [pytest.param("dynamo", marks=pytest.mark.slow), "trace"]  # dynamo takes a second more
X = (torch.randn(3, 4),)
ROWS = ({0: "rows"},)


class Encoder(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 8), nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.linear(x)).relu()

    def encode(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        # Plain trace makes the size of the example a constant.
        return self.linear(x) * scale / len(x)


GLOBAL = Encoder().eval()


class Offloaded(nn.Module):
    """As accelerate leaves a module: weights on the meta device, and a forward that brings them in for each call."""

    class Hook:
        def __init__(self, module: nn.Module) -> None:
            self.weights_map = {name: one.detach().clone() for name, one in module.named_parameters()}

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 8)
        linear: Any = self.linear
        linear._hf_hook, linear._old_forward = self.Hook(linear), linear.forward
        linear.forward = functools.partial(self._hooked, linear)
        for name, one in list(linear.named_parameters()):
            setattr(linear, name, nn.Parameter(one.detach().to("meta")))

    @staticmethod
    def _hooked(linear: Any, x: torch.Tensor) -> torch.Tensor:
        kept = linear._hf_hook.weights_map
        return nn.functional.linear(x, kept["weight"], kept["bias"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


class Behind(Encoder):
    """A part of a model, behind a mode of grad."""

    @torch.inference_mode()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) / x.shape[0]

    @torch.no_grad()
    def encode(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return super().encode(x, scale)


class Parts(nn.Module):
    def __init__(self, part: Any) -> None:
        super().__init__()
        self.part, self.head = part, nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.part(x)
        return self.head(found + self.part.encode(x) if isinstance(self.part, Behind) else found / x.shape[0])


class Listed(Encoder):
    """Its list of parts, which is traced too, has no forward."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.ReLU()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts[0](super().forward(x))


class LowRank(nn.Module):
    """As peft leaves a linear layer: its own weight, and two thin ones of an adapter chosen by name."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base_layer, self.active, self.merged = base, ["default"], False
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, base.out_features, bias=False)})
        self.lora_dropout = nn.ModuleDict({"default": nn.Dropout(0.1)})

    def merge(self) -> LowRank:
        with torch.no_grad():
            for name in self.active:
                self.base_layer.weight += 0.5 * self.lora_B[name].weight @ self.lora_A[name].weight
        self.merged = True
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.base_layer(x)
        for name in self.active if not self.merged else ():
            if name in self.lora_A:
                result = result + 0.5 * self.lora_B[name](self.lora_A[name](self.lora_dropout[name](x)))
        return result


def scripted() -> Any:
    return torch.jit.script(nn.Sequential(nn.Linear(4, 8), nn.ReLU()))


def program() -> Any:
    return torch.export.export(Encoder().eval(), X, dynamic_shapes=({0: torch.export.Dim("rows")},))


def in_inference_mode() -> Any:
    with torch.inference_mode():
        return Encoder().eval()


class OfAClass:
    model = Encoder().eval()

    @classmethod
    def encode(cls, x: torch.Tensor) -> torch.Tensor:
        return cls.model.encode(x)


class Delegating(Encoder):
    """Makes an object in its forward that asks another for what it has not, before that is there too."""

    class Helper:
        def __init__(self, held: Any) -> None:
            self.held = held

        def __getattr__(self, name: str) -> Any:
            return getattr(self.held, name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.Helper(self).encode(x)


def function() -> Any:
    model, head = Encoder().eval(), nn.Linear(8, 2)
    return lambda x: head(model.encode(x))


HELD: dict[str, Any] = {
    "program": program,
    "module of a program": lambda: program().module(),
    "module of a program, compiled": lambda: torch.compile(program().module()),
    "module of a program as a part": lambda: Parts(program().module()),
    "function": function,
    "method of a class": lambda: OfAClass.encode,
    "method": lambda: Encoder().eval().encode,
    "partial": lambda: functools.partial(Encoder().eval().encode, scale=3.0),
    "named in a comprehension": lambda: lambda x: torch.stack([GLOBAL.encode(part) for part in (x, -x)]).sum(0),
    "DataParallel": lambda: nn.DataParallel(Encoder().eval()),
    "offloaded": lambda: Offloaded().eval(),
    "part in inference mode": lambda: Parts(Behind()).eval(),
    "scripted part": lambda: Parts(scripted()).eval(),
    "traced part with a list": lambda: Parts(torch.jit.trace(Listed().eval(), X)).eval(),
    "traced part": lambda: Parts(torch.jit.trace(Encoder().eval(), X)).eval(),
    "made in inference mode": in_inference_mode,
    "helper that delegates": lambda: Delegating().eval(),
    "LoRA": lambda: Parts(LowRank(nn.Linear(4, 8))).eval(),
    "LoRA, merged": lambda: Parts(LowRank(nn.Linear(4, 8)).merge()).eval(),
    "training, the same in eval": Encoder,
}


@pytest.mark.parametrize("exporter", QUICK)
@pytest.mark.parametrize("case", HELD)
def test_each_is_exported(case: str, exporter: str) -> None:
    held = HELD[case]()
    report = onnxpatch.export(held, X, dynamic_shapes=ROWS, exporter=exporter, max_probes=4, progress=False)
    assert report.ok and {check.sizes["rows"] for check in report.checks} >= {1, 3}


def test_modes_and_scripted_parts_are_as_before() -> None:
    enter, part = torch.inference_mode.__enter__, scripted()
    forward = part.forward
    onnxpatch.export(Parts(part).eval(), X, exporter="trace", max_probes=2)
    with torch.inference_mode():
        assert torch.is_inference_mode_enabled()
    assert torch.inference_mode.__enter__ is enter and part.forward == forward and not torch.is_inference_mode_enabled()


class Streamed(nn.Module):
    """Compiled code that keeps what it heard, and asks `not` of a number and `~` of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = torch.zeros(0)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not len(self.heard):
            self.heard = torch.zeros(x.shape[0], 4)
        self.heard = self.heard + x
        self.calls += 1
        return self.heard * ~x.to(torch.int64) + (~x.to(torch.uint8)).to(x.dtype)


def test_compiled_code_with_a_state() -> None:
    compiled: Any = torch.jit.script(Streamed().eval())
    x = torch.rand(2, 4) * 9
    report = onnxpatch.export(compiled, (x,), dynamic_shapes=({0: "rows"},), exporter="trace", max_probes=6)
    assert report.ok and report.first_call == ["calls", "heard"] and {c.sizes["rows"] for c in report.checks} >= {1, 3}
    assert compiled.heard.numel() == compiled.calls == 0
    with pytest.raises(Exception, match="bitwise Not"):
        torch.onnx.export(compiled, (x,), io.BytesIO(), dynamo=False)  # torch translates as before


class Quantized(nn.Module):
    """As torch's quantization of an exported program leaves a layer; its grid is eager's, and no runtime kernel's."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor([[127] * 4, [-127] * 4], dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.quantized_decomposed
        x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, 0.02, 3, -128, 127, torch.int8), 0.02, 3, -128, 127,
                                      torch.int8)  # fmt: skip
        return nn.functional.linear(x, ops.dequantize_per_tensor(self.weight, 0.02, 0, -128, 127, torch.int8)).erf()


def test_a_wrong_quantized_program_is_said_to_be_quantized() -> None:
    x = (torch.randn(256, 4),)  # of a few numbers, erf of eager and of the runtime may be the same to the last bit
    quantized = torch.export.export(Quantized().eval(), x)
    with pytest.raises(onnxpatch.VerificationError, match=r"compare='cosine'.*the layers are quantized"):
        onnxpatch.export(quantized, x, exporter="dynamo", tolerance=1e-12, attempts="asked")


@pytest.mark.slow  # reads torch's table of translations
def test_a_quantized_layer_under_trace_names_the_exporter_that_takes_it() -> None:
    # By its name where torch has loaded these operators before.
    named = r"auto'\) goes on with the dynamo exporter|dynamo'\): that exporter translates quantized_decomposed"
    with pytest.raises(onnxpatch.ExportError, match=rf"exporter='({named})"):
        onnxpatch.export(Quantized().eval(), X, exporter="trace")


def test_the_modules_of_a_method_are_patched_and_restored() -> None:
    model = Encoder().eval()
    before = fingerprint(model)
    norm = nn.LayerNorm(8).eval()
    report = onnxpatch.export(functools.partial(lambda x, m: norm(m.encode(x)), m=model), X, exporter="trace")
    assert report.ok and fingerprint(model) == before


def test_a_program_has_its_own_example_and_sizes(tmp_path: Path) -> None:
    assert onnxpatch.export(program(), f=tmp_path / "m.onnx", exporter="trace", max_probes=4).ok
    (size, _) = onnx.load(tmp_path / "m.onnx").graph.input[0].type.tensor_type.shape.dim
    assert size.dim_param


def test_a_forward_behind_no_grad_dynamo() -> None:
    class Model(Encoder):
        @torch.no_grad()
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.linear(x).relu(), x * 2

    report = onnxpatch.export(Model().eval(), X, dynamic_shapes=ROWS, exporter="dynamo", max_probes=4)
    assert report.ok and len(report.attempts) == 1


class Functional(Encoder):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.linear(x), 0.5, self.training)


@pytest.mark.parametrize(
    ("held", "where"),
    [
        (lambda: Encoder(0.5), "'dropout', a Dropout"),
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), "'1', a BatchNorm1d"),
        (Functional, "its forward"),
        (lambda: Encoder(0.5).encode, "'model.dropout'"),
        (lambda: torch.export.export(Encoder(0.5), X), "'program', a GraphModule"),
    ],
)
def test_another_output_in_eval_is_refused(held: Any, where: str) -> None:
    with pytest.raises(onnxpatch.InputError, match=rf"(?s)in training mode.*\({where}"):
        onnxpatch.export(held(), X)


class Keyword(nn.Module):
    """torch.export keeps lgamma as an operator, which no exporter translates."""

    def forward(self, x: torch.Tensor, *, shift: torch.Tensor) -> torch.Tensor:
        return (x.abs() + shift).lgamma()


@pytest.mark.parametrize("exporter", QUICK)
def test_a_program_with_a_keyword(exporter: str) -> None:
    shift, shapes = {"shift": torch.rand(1)}, {"x": {0: torch.export.Dim("rows")}, "shift": {}}
    held = torch.export.export(Keyword(), X, shift, dynamic_shapes=shapes)
    assert onnxpatch.export(held, X, kwargs=shift, exporter=exporter, max_probes=4, attempts="asked").ok


@pytest.mark.parametrize("frozen", [False, True])
def test_traced_modules_are_exported_by_trace(frozen: bool) -> None:
    traced = torch.jit.trace(Encoder().eval(), X)
    traced = torch.jit.freeze(traced) if frozen else traced
    with pytest.raises(onnxpatch.ScriptedModelError, match=r"exporter='auto' picks it"):
        onnxpatch.export(traced, X)
    report = onnxpatch.export(traced, X, dynamic_shapes=ROWS, exporter="auto", max_probes=4)
    assert report.ok and report.exporter == "trace"


def test_within_inference_mode() -> None:
    with torch.inference_mode():
        assert onnxpatch.export(Encoder().eval(), X, dynamic_shapes=ROWS, exporter="dynamo", max_probes=2).ok
        assert torch.is_inference_mode_enabled()


def test_what_is_no_module_and_what_has_no_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(onnxpatch.InputError, match=r"not builtin_function_or_method: give a function that calls it"):
        onnxpatch.export(torch.sigmoid, X)
    monkeypatch.setattr(nn.Parameter, "full_tensor", None, raising=False)  # a DTensor has it
    with pytest.raises(onnxpatch.InputError, match=r"shared out among processes \(linear.weight and 1 more\)"):
        onnxpatch.export(Encoder().eval(), X)


def test_verify_takes_them_too(tmp_path: Path) -> None:
    model = Encoder().eval()
    onnxpatch.export(nn.DataParallel(model), X, tmp_path / "m.onnx", exporter="trace", dynamic_shapes=ROWS)
    assert onnxpatch.verify(tmp_path / "m.onnx", nn.DataParallel(model), X, max_probes=2).ok
