"""The cases written here: which part, in which host, under which exporter, and the true culprit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.diagnosis.failing_models.case import Ailing
from tests.diagnosis.failing_models.hidden import (
    Assisted,
    Attempted,
    ByNumpy,
    Cropped,
    Folded,
    Ragged,
    RefusedTwice,
    SharePicked,
    Stacked,
    Ternary,
    Unfolded,
)
from tests.diagnosis.failing_models.hosts import ByMethod, Flat, Listed, Net, OwnFault
from tests.diagnosis.failing_models.joined import Carrying, Flags, Positions, Scripted, SquareNet, TwoFaults, Vision
from tests.diagnosis.failing_models.parts import (
    WIDTH,
    Branch,
    BranchOnSize,
    Guarded,
    Item,
    MeanScatter,
    Padded,
    Pooled,
    Ranked,
    Rebuilt,
    Repeated,
    RootOfLength,
    Rows,
    ScaleByLength,
    Selected,
    Spectrum,
    Steps,
    Table,
    Values,
)


def _tokens() -> tuple[Tensor]:
    return (torch.randn(2, 6, WIDTH, generator=torch.Generator().manual_seed(1)),)


def _eight() -> tuple[Tensor]:
    return (torch.randn(2, 8, WIDTH, generator=torch.Generator().manual_seed(1)),)


def _warm() -> nn.Module:
    """A model that has run once, and keeps the table of that run."""
    model = Net(Table)
    model(*_tokens())
    return model


def _sixteen() -> tuple[Tensor]:
    return (torch.randn(2, 16, WIDTH, generator=torch.Generator().manual_seed(1)),)


def _image() -> tuple[Tensor]:
    return (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1)),)


def _masked() -> tuple[Tensor, Tensor]:
    return (*_tokens(), torch.zeros(2, 6, dtype=torch.bool))


LENGTH = ({0: "batch", 1: "length"},)
BATCH = ({0: "batch"},)
IMAGE = ({2: "height", 3: "width"},)


def _net(part: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: Net(part)


def _flat(part: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: Flat(part)


def _listed(part: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: Listed(part)


def _by_method(part: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: ByMethod(part)


FEW = [(torch.randn(1, 2, WIDTH, generator=torch.Generator().manual_seed(2)),)]
DEEP, TOP, LIST, METHOD = "blocks.1.part", "part", "layers.1", "backbone.layers.1"
CASES = [
    # the TorchScript exporter by tracing: mostly silent
    Ailing("branch", _net(Branch), _tokens, LENGTH, "trace", DEEP, "silent", "if x.sum() > 0"),
    Ailing("branch-flat", _flat(Branch), _tokens, LENGTH, "trace", TOP, "silent", "if x.sum() > 0"),
    Ailing("branch-method", _by_method(Branch), _tokens, LENGTH, "trace", METHOD, "silent", "if x.sum() > 0"),
    Ailing("size-branch", _net(BranchOnSize), _tokens, LENGTH, "trace", DEEP, "silent", "if x.shape[1] > 7"),
    Ailing("size-branch-list", _listed(BranchOnSize), _tokens, LENGTH, "trace", LIST, "silent", "x.shape[1] > 7"),
    Ailing("root", _net(RootOfLength), _tokens, LENGTH, "trace", DEEP, "silent", "int(x.shape[1]"),
    Ailing("root-method", _by_method(RootOfLength), _tokens, LENGTH, "trace", METHOD, "silent", "int(x.shape[1]"),
    Ailing("scale", _listed(ScaleByLength), _tokens, LENGTH, "trace", LIST, "silent", "sqrt(x.shape[1])"),
    Ailing("rows", _net(Rows), _tokens, LENGTH, "trace", DEEP, "silent", "for row in x"),
    Ailing("steps", _flat(Steps), _tokens, LENGTH, "trace", TOP, "silent", "range(x.size(1))"),
    Ailing("item", _net(Item), _tokens, LENGTH, "trace", DEEP, "silent", ".item()"),
    Ailing("rebuilt", _listed(Rebuilt), _tokens, LENGTH, "trace", LIST, "silent", "torch.tensor("),
    Ailing("table", _warm, _tokens, LENGTH, "trace", DEEP, "silent"),
    Ailing("spectrum", _net(Spectrum), _tokens, LENGTH, "trace", DEEP, "refused", "fft", "aten::fft_fft"),
    Ailing("values", _by_method(Values), _tokens, LENGTH, "trace", METHOD, "refused", "svdvals", "svdvals"),
    Ailing("ranked", _listed(Ranked), _tokens, LENGTH, "trace", LIST, "refused", "kthvalue", "aten::kthvalue"),
    Ailing("selected", _flat(Selected), _tokens, LENGTH, "trace", TOP, "silent", "kept.shape[0]", data=FEW),
    Ailing("pooled", _net(Pooled), _tokens, LENGTH, "trace", DEEP, "refused", "adaptive_avg_pool1d"),
    Ailing("repeated", _flat(Repeated), _tokens, LENGTH, "trace", TOP, "silent", "int("),
    Ailing("guarded", _flat(Guarded), _tokens, LENGTH, "trace", TOP, "silent", "if x.mean() < 0"),
    Ailing("padded", _flat(Padded), _eight, LENGTH, "trace", TOP, "silent", "if pad > 0"),
    Ailing("own", OwnFault, _tokens, LENGTH, "trace", "join", "silent", "int(x.shape[1] / 2)"),
    Ailing("squarer", SquareNet, _sixteen, LENGTH, "trace", "mix", "silent", "math.sqrt(x.shape[1])"),
    Ailing("positions", lambda: Vision(Positions), _image, IMAGE, "trace", "positions", "silent"),
    Ailing("carried", Carrying, _masked, (LENGTH[0], LENGTH[0]), "trace", "reader", "silent", "held.mask.any()"),
    Ailing("flags", Flags, _tokens, LENGTH, "trace", "", "silent"),
    Ailing("share", _net(SharePicked), _tokens, LENGTH, "trace", DEEP, "silent", "int(x.shape[1] * 0.5)"),
    Ailing("cropped", _flat(Cropped), _eight, LENGTH, "trace", TOP, "silent", "if length > 9"),
    Ailing("ternary", _listed(Ternary), _tokens, LENGTH, "trace", LIST, "silent", "if x.sum() > 0"),
    Ailing("numpy", _flat(ByNumpy), _tokens, LENGTH, "trace", TOP, "silent", "np.prod"),
    Ailing("attempted", _net(Attempted), _tokens, LENGTH, "trace", DEEP, "refused", "self.wide(x)"),
    Ailing("ragged", _flat(Ragged), _tokens, LENGTH, "trace", TOP, "refused", "nested_tensor("),
    Ailing("folded", _flat(Folded), _tokens, LENGTH, "trace", TOP, "refused", "F.fold", "col2im"),
    Ailing("unfolded", _flat(Unfolded), _tokens, LENGTH, "trace", TOP, "refused", "padded.unfold", "nfold"),
    Ailing("stacked", _flat(Stacked), _tokens, LENGTH, "trace", TOP, "silent", "both.split(x.shape[0])"),
    Ailing("twice", _flat(RefusedTwice), _tokens, LENGTH, "trace", TOP, "refused", "svdvals", "svd"),
    # torch.export: refused, or silent where a size was settled
    Ailing("branch", _net(Branch), _tokens, LENGTH, "dynamo", DEEP, "refused", "if x.sum() > 0"),
    Ailing("branch-list", _listed(Branch), _tokens, LENGTH, "dynamo", LIST, "refused", "if x.sum() > 0"),
    Ailing("size-branch", _net(BranchOnSize), _tokens, LENGTH, "dynamo", DEEP, "silent", "if x.shape[1] > 7"),
    Ailing("root", _by_method(RootOfLength), _tokens, LENGTH, "dynamo", METHOD, "silent", "int(x.shape[1]"),
    Ailing("rows", _net(Rows), _tokens, LENGTH, "dynamo", DEEP, "refused", "for row in x"),
    Ailing("values", _flat(Values), _tokens, LENGTH, "dynamo", TOP, "refused", "svdvals", "svd"),
    Ailing("ranked", _net(Ranked), _tokens, LENGTH, "dynamo", DEEP, "refused", "kthvalue", "aten::kthvalue"),
    Ailing("selected", _listed(Selected), _tokens, LENGTH, "dynamo", LIST, "refused", "kept.shape[0]"),
    Ailing("scatter", _net(MeanScatter), _tokens, LENGTH, "dynamo", DEEP, "silent", "scatter_reduce"),
    Ailing("padded", _flat(Padded), _eight, LENGTH, "dynamo", TOP, "silent", "if pad > 0"),
    Ailing("own", OwnFault, _tokens, LENGTH, "dynamo", "join", "silent", "int(x.shape[1] / 2)"),
    Ailing("squarer", SquareNet, _sixteen, LENGTH, "dynamo", "mix", "refused", "math.sqrt(x.shape[1])"),
    Ailing("positions", lambda: Vision(Positions), _image, IMAGE, "dynamo", "positions", "silent"),
    Ailing("two", TwoFaults, _tokens, LENGTH, "dynamo", "b", "refused", "if x.sum() > 0"),
    Ailing("share", _net(SharePicked), _tokens, LENGTH, "dynamo", DEEP, "silent", "int(x.shape[1] * 0.5)"),
    Ailing("attempted", _flat(Attempted), _tokens, LENGTH, "dynamo", TOP, "refused", "self.wide(x)"),
    Ailing("assisted", _flat(Assisted), _tokens, LENGTH, "dynamo", TOP, "silent", "whole(x.shape[1] / 2)"),
    # torch.jit.script
    Ailing("keywords", _net(Scripted), _tokens, LENGTH, "script", DEEP, "refused"),
    Ailing("spectrum", _flat(Spectrum), _tokens, LENGTH, "script", TOP, "refused", "fft", "aten::fft_fft"),
]
